"""td.vertex and td.Structure: a function of one vertex over structures that are data."""

import numpy as np
import pytest

import tandem as td
from tandem import _runtime, nn

TREES = [(0, (1, 2), ((3, 4), 5)), (6, 7), 8, ((9, (10, 11, 12)), 13)]


def same(a, b, tolerance=1e-5):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=tolerance, atol=tolerance)


def recursion(fn, structure, inputs, state):
    """The same, vertex by vertex."""
    single = not isinstance(state, tuple)
    states = (state,) if single else state
    made = {}
    for v in _runtime_order(structure):
        rows = structure.children[structure.offsets[v] : structure.offsets[v + 1]]
        given = [
            td.stack([made[c][i] for c in rows]) if len(rows) else td.zeros(0, *s.shape) for i, s in enumerate(states)
        ]
        result = fn(given[0] if single else tuple(given), *(x[v] for x in inputs))
        made[v] = result if isinstance(result, tuple) else (result,)
    columns = [td.stack([made[v][i] for v in range(len(structure))]) for i in range(len(made[0]))]
    return columns[0] if single and len(columns) == 1 else tuple(columns)


def _runtime_order(structure):
    done, order = set(), []
    while len(order) < len(structure):
        for v in range(len(structure)):
            rows = structure.children[structure.offsets[v] : structure.offsets[v + 1]]
            if v not in done and all(int(c) in done for c in rows):
                done.add(v)
                order.append(v)
    return order


def compare(fn, structure, inputs, state, parameters=(), **kwargs):
    """Values and gradients of a vertex program are those of calling the function vertex by vertex."""
    leaves = [t for t in (*inputs, *parameters) if t.requires_grad]

    def gradients(made):
        made = made if isinstance(made, tuple) else (made,)
        loss = sum((td.tanh(m) * (i + 1)).sum() for i, m in enumerate(made))
        return td.autograd.grad(loss, leaves)

    down = kwargs.get("direction") == "down"
    expected = recursion(fn, structure.reversed if down else structure, inputs, state)
    made = td.vertex(fn)(structure, *inputs, state=state, **kwargs)
    pairs = ((made, expected),) if isinstance(made, td.Tensor) else zip(made, expected, strict=True)
    for m, e in pairs:
        same([m], [e])
    same(gradients(made), gradients(expected))


def inputs_for(structure, width=4, seed=0):
    td.manual_seed(seed)
    return td.randn(len(structure), width, requires_grad=True)


def test_child_sum_tree_lstm():
    structure, _ = td.Structure.from_nested(TREES)
    x, zero = inputs_for(structure), td.zeros(5)
    gates, inner, forget, forget_x = nn.Linear(4, 15), nn.Linear(5, 15, bias=False), nn.Linear(5, 5), nn.Linear(4, 5)

    def cell(children, x):
        h, c = children
        i, o, u = (gates(x) + inner(h.sum(0))).chunk(3, -1)
        kept = (td.sigmoid(forget(h) + forget_x(x)) * c).sum(0)
        c = td.sigmoid(i) * td.tanh(u) + kept
        return td.sigmoid(o) * td.tanh(c), c

    parameters = [p for layer in (gates, inner, forget, forget_x) for p in layer.parameters()]
    compare(cell, structure, [x], (zero, zero), parameters)


def test_children_told_apart_and_leaves_of_their_own():
    structure, _ = td.Structure.from_nested([((0, 1), (2, (3, 4))), (5, 6)])
    x = inputs_for(structure)
    w = td.randn(2, 4, 4, requires_grad=True)

    def cell(children, x):
        if children.shape[0] == 0:
            return td.tanh(x)
        left, right = children
        return td.tanh(left @ w[0] + right @ w[1])

    compare(cell, structure, [x], td.zeros(4), [w])


def test_attention_over_children_and_outputs_besides_the_state():
    structure, _ = td.Structure.from_nested(TREES)
    x = inputs_for(structure)
    w = td.randn(4, 4, requires_grad=True)

    def cell(children, x):
        weights = td.softmax(children @ w @ x, 0)
        state = td.tanh(x + weights @ children)
        return state, (state * x).sum()

    compare(cell, structure, [x], td.zeros(4), [w])
    compare(lambda children, x: (td.tanh(children[0].sum(0) + x),), structure, [x], (td.zeros(4),))


@pytest.mark.parametrize("direction", ["up", "down"])
def test_graphs_in_which_vertices_share_children(direction):
    structure = td.Structure([0, 0, 0, 2, 4, 7], [0, 1, 0, 2, 3, 2, 1])
    x = inputs_for(structure)
    compare(lambda s, x: td.tanh(x + s.sum(0)), structure, [x], td.zeros(4), direction=direction)


def test_chains_are_recurrent_networks():
    td.manual_seed(0)
    cell = nn.GRUCell(4, 6)
    lengths = [3, 5, 1]
    x = td.randn(sum(lengths), 4, requires_grad=True)
    start = td.zeros(6)

    def step(before, x):
        return cell(x, before[0] if before.shape[0] else start)

    made = td.vertex(step)(td.Structure.chains(lengths), x, state=start)
    at = 0
    for n in lengths:
        h = start
        for k in range(n):
            h = cell(x[at + k], h)
            same([made[at + k]], [h])
        at += n


def test_inside_a_compiled_training_step():
    structure, _ = td.Structure.from_nested(TREES)
    x = inputs_for(structure).detach()
    w = td.randn(4, 4)

    @td.vertex
    def program(children, x, factor):
        return td.tanh((x + children.sum(0)) @ weight * factor)

    def step(x):
        state = program(structure, x * 2, x.sum(1) * 0 + 1, state=td.zeros(4))
        loss = (state * 3).sum()
        loss.backward()
        found = weight.grad
        weight.grad = None
        return loss, found

    weight = w.clone().requires_grad_()
    expected = step(x)
    compiled = td.compile(step)
    same(compiled(x), expected)
    before = compiled._programs.num_programs
    same(compiled(x), expected)
    assert compiled._programs.num_programs == before


def test_a_compiled_step_with_a_vertex_program_is_one_program_for_all_structures():
    weight = td.randn(6, 6, requires_grad=True)

    @td.vertex
    def program(children, x):
        return td.tanh((x + children.sum(0)) @ weight)

    def step(structure, x):
        y = x * 2
        state = program(structure, y, state=td.zeros(6))
        loss = (state**2).sum() + y.sum()
        loss.backward()
        found = weight.grad, x.grad
        weight.grad = x.grad = None
        return loss, state, *found

    compiled = td.compile(step, whole=True)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n = 11 + 3 * seed
        parents = [int(rng.integers(v + 1, n + 1)) for v in range(n)]
        structure = td.Structure.from_parents([p if p < n else -1 for p in parents])
        x = td.tensor(rng.standard_normal((n, 6), np.float32), requires_grad=True)
        expected = step(structure, x)
        same(compiled(structure, x), expected)
    assert compiled._programs.num_programs == 2  # for the first sizes, and for any


def test_inside_a_compiled_function_without_gradients_with_dropout_and_with_outputs_beside_the_state():
    structure, _ = td.Structure.from_nested(TREES)
    x = inputs_for(structure).detach()

    @td.vertex
    def program(children, x, rate):
        state = td.tanh(x + td.dropout(children, 0.5, training=rate > 0).sum(0))
        return state, state.sum(), x > 0

    for rate in (0, 1):
        one = td.vertex(lambda children, x, rate=rate: program._fn(children, x, rate))

        def run(x, one=one):
            return one(structure, x + 1, state=td.zeros(4))

        td.manual_seed(5)
        expected = run(x)
        compiled = td.compile(run)
        for _ in range(2):
            td.manual_seed(5)
            same(compiled(x), expected)


def test_backward_twice_through_a_vertex_program_in_a_compiled_function():
    structure, _ = td.Structure.from_nested(TREES)
    weight = td.randn(4, 4, requires_grad=True)
    x = inputs_for(structure).detach()
    program = td.vertex(lambda children, x: td.tanh((x + children.sum(0)) @ weight))

    def step(x):
        total = program(structure, x, state=td.zeros(4)).sum()
        total.backward(retain_graph=True)
        total.backward()
        found, weight.grad = weight.grad, None
        return found

    same([td.compile(step)(x)], [step(x)])


def test_an_error_of_a_vertex_program_in_a_compiled_function_says_what_is_wrong():
    program = td.vertex(lambda children, x, i: x + td.take(x, i) + children.sum(0))
    structure, _ = td.Structure.from_nested(TREES)
    x = inputs_for(structure).detach()
    run = td.compile(lambda x, i: program(structure, x * 1, i * 1, state=td.zeros(4)) * 2)
    at = td.zeros(len(structure), dtype=td.int64)
    run(x, at)
    at[3] = 9
    with pytest.raises(td.TandemError, match="index 9 is out of range"):
        run(x, at)


def test_new_structures_compile_nothing(monkeypatch):
    w = td.randn(4, 4, requires_grad=True)

    @td.vertex
    def program(children, x):
        return td.tanh((x + children.sum(0)) @ w)

    def step(seed):
        rng = np.random.default_rng(seed)
        parents = [int(rng.integers(v + 1, v + 4)) for v in range(40)]
        structure = td.Structure.from_parents([p if p < 40 else -1 for p in parents])
        keep = structure.counts.max() <= 3
        if keep:
            program(structure, inputs_for(structure, seed=seed), state=td.zeros(4)).sum().backward()
        return keep

    assert sum(step(seed) for seed in range(8)) > 1
    compiled = []
    real = td.tracing.compile._compile_plan
    monkeypatch.setattr(td.tracing.compile, "_compile_plan", lambda *args: compiled.append(args[0]) or real(*args))
    assert sum(step(seed) for seed in range(100, 120)) > 3
    assert [f.__name__ for f in compiled if f.__name__.startswith("vertex")] == []


def test_dropout_in_a_vertex_draws_the_numbers_of_its_turn():
    structure = td.Structure.chains([4, 2])
    x = td.ones(6, 20)

    @td.vertex
    def program(children, x):
        return nn.functional.dropout(x + children.sum(0), 0.5)

    td.manual_seed(1)
    first = program(structure, x, state=td.zeros(20))
    td.manual_seed(1)
    same([first], [program(structure, x, state=td.zeros(20))], 0)
    assert not np.array_equal(first[0].numpy(), first[4].numpy())


def test_methods_can_be_vertex_programs():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)

        @td.vertex
        def state(self, children, x):
            return td.tanh(self.inner(x) + children.sum(0))

    model = Model()
    made = model.state(td.Structure.chains([2]), td.ones(2, 3), state=td.zeros(3))
    same([made[1]], [td.tanh(model.inner(td.ones(3)) + made[0])])


def test_structures_from_arrays():
    by_parents = td.Structure.from_parents(td.tensor([2, 2, 4, 4, -1]))
    assert by_parents.offsets.tolist() == [0, 0, 0, 2, 2, 4]
    assert by_parents.children.tolist() == [0, 1, 2, 3]
    nested, leaves = td.Structure.from_nested([(("a", "b"), "c"), "d"])
    assert leaves == ["a", "b", None, "c", None, "d"]
    assert nested.children.tolist() == [0, 1, 2, 3]
    assert nested.reversed.reversed.children.tolist() == nested.children.tolist()
    assert repr(nested) == "Structure(6 vertices, 4 edges, 2 roots)"
    deep = 0
    for _ in range(5000):
        deep = (deep,)
    assert len(td.Structure.from_nested([deep])[0]) == 5001


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: td.Structure([0, 1], [5]), "a child is no vertex"),
        (lambda: td.Structure([0, 2], [0]), "offsets must begin with 0 and end with 1"),
        (lambda: td.Structure([0, 2, 1], [0]), "must not fall"),
        (lambda: td.Structure([0.0, 1.0], [0]), "must have integers"),
        (lambda: td.Structure.from_parents([7]), "a parent is no vertex"),
        (lambda: td.Structure.chains([2, 0]), "must have an element"),
    ],
)
def test_structures_that_make_no_sense(make, text):
    with pytest.raises(td.TandemError, match=text):
        make()


def test_errors_of_vertex_programs():
    program = td.vertex(lambda children, x: x + children.sum(0))
    chain, x, zero = td.Structure.chains([3]), td.ones(3, 2), td.zeros(2)
    with pytest.raises(td.ShapeError, match="inputs have a row for each"):
        program(chain, td.ones(4, 2), state=zero)
    with pytest.raises(td.ShapeError, match=r"gave \(2,\) .* which is \(3,\)"):
        td.vertex(lambda children, x: x)(chain, x, state=td.zeros(3))
    with pytest.raises(td.ValueRangeError, match="has a cycle, and vertex 0"):
        program(td.Structure([0, 1, 2, 2], [1, 0]), x, state=zero)
    with pytest.raises(td.ValueRangeError, match="'up' or 'down'"):
        program(chain, x, state=zero, direction="left")
    with pytest.raises(td.DTypeError, match="no argument is a structure"):
        program(x, state=zero)
    with pytest.raises(td.ValueRangeError, match="reads the value"):
        td.vertex(lambda children, x: x if x.sum() > 0 else -x)(chain, x, state=zero)
    with pytest.raises(td.DTypeError, match="cannot be called"):
        td.vertex(3)


def test_an_error_while_it_runs_names_the_vertex():
    table = td.ones(4, 2)
    program = td.vertex(lambda children, x: nn.functional.embedding(x, table) + children.sum(0))
    with pytest.raises(td.IndexRangeError, match="in vertex 1"):
        program(td.Structure.chains([3]), td.tensor([1, 9, 2]), state=td.zeros(2))


def test_gradients_of_gradients():
    structure, _ = td.Structure.from_nested(TREES)
    x = td.randn(len(structure), 3, dtype=td.float64).requires_grad_()
    weight = td.randn(3, 3, dtype=td.float64).requires_grad_()

    def cell(children, x):
        return td.tanh(x + children.sum(0) @ weight)

    def second(program):
        h = program(cell)
        (g,) = td.autograd.grad((h**2).sum(), [x], create_graph=True)
        return td.autograd.grad((g**3).sum(), [x, weight])

    zero = td.zeros(3, dtype=td.float64)
    run = second(lambda fn: td.vertex(fn)(structure, x, state=zero))
    expected = second(lambda fn: recursion(fn, structure, [x], zero))
    same(run, expected, 1e-9)


def test_inputs_of_any_layout_and_type():
    structure, _ = td.Structure.from_nested(TREES)
    table = td.randn(5, 4).requires_grad_()
    tokens = td.arange(len(structure)) % 5
    x = td.randn(4, 2 * len(structure)).T[::2].requires_grad_()

    def cell(children, token, x):
        return td.sigmoid(table[token] * x + children.mean(0) if children.shape[0] else x)

    compare(cell, structure, [tokens, x], td.zeros(4), [table])


def test_states_that_need_no_gradient_and_inference():
    structure, _ = td.Structure.from_nested(TREES)
    weight = td.randn(3, 3).requires_grad_()
    x = td.randn(len(structure), 3)

    @td.vertex
    def program(children, x):
        return td.tanh(x + children.sum(0)), td.tanh(x @ weight)

    h, out = program(structure, x, state=td.zeros(3))
    assert out.requires_grad
    out.sum().backward()
    assert weight.grad is not None
    with td.inference_mode():
        again, _ = program(structure, x, state=td.zeros(3))
    same([h], [again])


def test_a_function_without_a_batching_rule_runs_vertex_by_vertex(monkeypatch):
    structure, _ = td.Structure.from_nested(TREES)
    x = td.randn(len(structure), 3).requires_grad_()
    weight = td.randn(3, 3).requires_grad_()
    monkeypatch.setattr("tandem.compiling.vertex_program._runtime", Without(_runtime))
    compare(lambda children, x: td.tanh(x + children.sum(0) @ weight), structure, [x], td.zeros(3), [weight])


class Without:
    """The runtime, if no function had a batching rule."""

    def __init__(self, runtime):
        self._runtime_part = runtime

    def __getattr__(self, name):
        return (lambda *args: None) if name == "run_frontiers" else getattr(self._runtime_part, name)


@pytest.fixture
def as_on_devices():
    """Rows are gathered, and their gradients added up, as on devices."""
    before = _runtime.set_rows_as_on_devices(True)
    yield
    _runtime.set_rows_as_on_devices(before)


@pytest.mark.usefixtures("as_on_devices")
def test_rows_as_on_devices():
    test_child_sum_tree_lstm()
    test_attention_over_children_and_outputs_besides_the_state()
    test_dropout_in_a_vertex_draws_the_numbers_of_its_turn()
    for direction in ("up", "down"):
        test_graphs_in_which_vertices_share_children(direction)
    test_gradients_of_gradients()


def test_a_frontier_of_roots_alone_compiles_no_other_backward(monkeypatch):
    """Nothing takes the second state of a root; where all of a frontier are roots, its gradient is zeros."""
    w = td.randn(3, 3, requires_grad=True)

    @td.vertex
    def program(children, x):
        _, c = children
        c = td.tanh(x @ w) + c.sum(0)
        return td.sigmoid(c), c

    def step(parents):
        structure = td.Structure.from_parents(parents)
        x = inputs_for(structure, width=3)
        h, _ = program(structure, x, state=(td.zeros(3), td.zeros(3)))
        w.grad = None
        h.sum().backward()
        return w.grad

    step([1, 3, 3, -1])  # the root has two children, one of which has one
    names = []
    real = td.tracing.compile._compile_plan
    monkeypatch.setattr(
        td.tracing.compile, "_compile_plan", lambda *args: names.append(args[0].__name__) or real(*args)
    )
    found = step([1, -1, 3, -1])
    assert not [name for name in names if name.startswith("vertex")]
    x = inputs_for(td.Structure.from_parents([1, -1, 3, -1]), width=3)
    t = td.tanh(x @ w)
    rows = td.sigmoid(t[[0, 2]]).sum() + td.sigmoid(t[[1, 3]] + t[[0, 2]]).sum()
    (wanted,) = td.autograd.grad(rows, [w])
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
