"""td.autobatch: results and gradients are those of the same code without it; calls that are alike run as one."""

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import tandem as td
from tandem import connect, nn

TREES = [(1, (2, 3), ((4, 5), 6)), (1, 2), ((1, 2), (3, (4, 5))), 3]


def parameters():
    td.manual_seed(0)
    return [td.randn(8, 8, requires_grad=True), td.zeros(8, requires_grad=True), td.randn(10, 8, requires_grad=True)]


def state(tree, weight, bias, table):
    if isinstance(tree, int):
        return td.tanh(table[tree] @ weight + bias)
    children = [state(child, weight, bias, table) for child in tree]
    total = children[0]
    for child in children[1:]:
        total = total + child
    left, right = (total @ weight + bias).chunk(2)
    return td.tanh(td.cat([left * td.sigmoid(right), right]))


def loss_of(trees, *parameters):
    total = 0.0
    for tree in trees:
        total += (state(tree, *parameters) ** 2).sum()
    return total


def gradients(loss, parameters):
    loss.backward()
    found = [p.grad for p in parameters]
    for p in parameters:
        p.grad = None
    return found


def same(a, b, tolerance=1e-5):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=tolerance, atol=tolerance)


def test_a_recursion_over_trees_gives_the_same_values_and_gradients_in_fewer_operators():
    p = parameters()
    expected = loss_of(TREES, *p)
    wanted = gradients(expected, p)
    with td.autobatch() as batch:
        loss = loss_of(TREES, *p)
    same([loss], [expected])
    assert batch.groups < batch.calls / 3
    same(gradients(loss, p), wanted)


def test_backward_and_an_optimiser_step_work_inside_the_scope():
    p, q = parameters(), parameters()
    for tensors, scope in ((p, td.autobatch()), (q, td.enable_grad())):
        optimizer = td.optim.SGD(tensors, lr=0.1)
        with scope:
            for _ in range(3):
                optimizer.zero_grad()
                loss_of(TREES, *tensors).backward()
                optimizer.step()
    same(p, q)


def test_a_decorated_function_has_a_scope_of_its_own():
    p = parameters()
    decorated = td.autobatch(loss_of)
    assert decorated.__name__ == "loss_of"
    same([decorated(TREES, *p)], [loss_of(TREES, *p)])


def test_reading_a_value_runs_what_it_needs_and_nothing_else():
    x = td.ones(3)
    with td.autobatch() as batch:
        wanted = (x * 2).sum()
        other = (x * 3).exp()
        assert wanted.item() == 6.0
        assert batch.calls == 2
        if wanted > 5:
            other = other + 1
    np.testing.assert_allclose(other.numpy(), np.exp(3.0) + 1, rtol=1e-6)


def test_what_nobody_holds_never_runs():
    with td.autobatch() as batch:
        kept = td.ones(3) * 2
        del kept
    assert batch.calls == 0


def test_weight_gradients_of_a_group_are_one_product():
    w = td.randn(4, 4, requires_grad=True)
    xs = [td.randn(4) for _ in range(16)]
    with td.autobatch() as batch:
        loss = td.stack([x @ w for x in xs]).sum()
        loss.item()
        assert batch.groups == 3  # the products, stack and sum
    loss.backward()
    same([w.grad], [sum(x[:, None] * td.ones(4) for x in xs)])


def test_no_grad_and_detach_stop_gradients():
    w = td.ones(3, requires_grad=True)
    with td.autobatch():
        with td.no_grad():
            a = [w * k for k in (1.0, 2.0)]
        b = [(w * 3).detach() * w for _ in range(2)]
    assert not a[0].requires_grad
    sum(b).sum().backward()
    same([w.grad], [td.full((3,), 6.0)])


def test_random_numbers_are_those_of_eager_code():
    x = td.ones(50)

    def run():
        td.manual_seed(3)
        return [nn.functional.dropout(x * k, 0.5) for k in (1.0, 2.0, 3.0)] + [td.rand(4) for _ in range(3)]

    expected = run()
    with td.autobatch():
        made = run()
        after = td.rand(2)
    same(made, expected, 0)
    td.manual_seed(3)
    run_again = run()
    del run_again
    same([after], [td.rand(2)], 0)


def test_views_of_results_have_values_and_gradients():
    x = [td.randn(2, 6, requires_grad=True) for _ in range(3)]

    def run():
        parts = []
        for t in x:
            y = td.tanh(t)
            a, b, c = y.chunk(3, -1)
            parts.append((y.T[1:3] * y[:, 2:4].reshape(2, 2)).sum() + (a * b.T @ c).sum() + y.expand(4, 2, 6).sum())
            parts.append(y.reshape(3, 4).T[1:].mean() + y[0][1:4].sum() + y[..., None, 0].sum())
        return sum(parts)

    wanted = gradients(run(), x)
    with td.autobatch():
        loss = run()
    same(gradients(loss, x), wanted)


def test_gradients_of_rows_that_are_reshaped():
    x = [td.randn(2, 3, requires_grad=True) for _ in range(3)]

    def run():
        return sum((td.tanh(td.exp(t).reshape(6)) * k).sum() for k, t in enumerate(x, 1))

    wanted = gradients(run(), x)
    with td.autobatch():
        loss = run()
    same(gradients(loss, x), wanted)


def test_gradients_of_intermediate_results_and_hooks_on_them():
    w = td.randn(3, requires_grad=True)

    def run(seen):
        h = [td.tanh(w * k) for k in (1.0, 2.0)]
        h[0].register_hook(lambda g: seen.append(g.clone()))
        h[1].retain_grad()
        views = [t[1:] for t in h]
        return h, (h[0] * h[1]).sum() + (views[0] ** 2).sum() + (views[1][0] * 3)

    seen, batched_seen = [], []
    h, loss = run(seen)
    expected = td.autograd.grad(loss, h, retain_graph=True)
    loss.backward()
    with td.autobatch():
        g, batched = run(batched_seen)
    same(td.autograd.grad(batched, g, retain_graph=True), expected)
    batched.backward()
    same([g[1].grad], [h[1].grad])
    same(batched_seen, seen)


def test_second_derivatives():
    w = td.tensor([0.3, -0.7], requires_grad=True)
    m = td.tensor([[0.5, 0.1], [-0.2, 0.8]], requires_grad=True)

    def run():
        h = [td.tanh(w * k) @ m for k in (1.0, 2.0, 3.0)]
        h = [td.sin(t[:1]) * t[1:] + t.sum() for t in h]
        return sum(h).sum()

    def second(loss):
        first = td.autograd.grad(loss, [w, m], create_graph=True)
        return td.autograd.grad(sum((g**2).sum() for g in first), [w, m])

    expected = second(run())
    with td.autobatch():
        loss = run()
    same(second(loss), expected)


def test_in_place_operators():
    def run():
        x = [td.ones(3) * k for k in (1.0, 2.0)]
        total = x[0] * 0
        for t in x:
            total += t
            t.mul_(2)
        view = x[0][1:]
        view.add_(10.0)
        x[1][0] = 7.0
        return [total, *x]

    expected = run()
    with td.autobatch():
        made = run()
    same(made, expected)


def test_what_was_deferred_reads_memory_as_it_was():
    x = td.ones(3)
    with td.autobatch():
        y = x * 2
        x.add_(5.0)
        z = x * 2
    same([y, z], [td.full((3,), 2.0), td.full((3,), 12.0)])


def test_a_shared_operand_that_is_a_result_itself():
    w = td.randn(4, 4, requires_grad=True)
    xs = [td.randn(4) for _ in range(5)]

    def run():
        scaled = w / td.linalg.norm(w)
        return sum((x @ scaled).sum() for x in xs)

    wanted = gradients(run(), [w])
    with td.autobatch():
        loss = run()
    same(gradients(loss, [w]), wanted)


def test_operators_with_several_results_and_without_batching_rules():
    xs = [td.randn(5) for _ in range(3)]

    def run():
        return [t for x in xs for t in (*td.topk(x, 2), *td.max(x, 0), td.bincount(td.argsort(x)), x[x > 0])]

    expected = run()
    with td.autobatch():
        made = run()
    same(made, expected)


def test_errors_name_the_example_and_the_line():
    table = td.randn(4, 2)
    indices = [td.tensor([k]) for k in (1, 2, 9, 3)]

    @td.autobatch
    def example(index):
        return nn.functional.embedding(index + 0, table)  # the index is not known when this line runs

    with pytest.raises(td.IndexRangeError, match="in example 2") as caught, td.autobatch():
        made = [example(i) for i in indices]
    assert len(made) == 4
    assert "test_autobatch.py" in str(caught.value)


def test_shape_errors_come_from_the_very_line():
    with td.autobatch():
        x = td.ones(3) * 2
        with pytest.raises(td.ShapeError, match="matmul"):
            x @ td.ones(4, 2)
    same([x], [td.full((3,), 2.0)])


def test_what_a_failing_scope_deferred_has_no_value():
    with pytest.raises(KeyError), td.autobatch():
        x = td.ones(3) * 2
        raise KeyError
    with pytest.raises(td.TandemError, match="without a value"):
        x.sum().item()


def test_modules_with_loops_of_different_lengths():
    td.manual_seed(0)
    cell, head = nn.LSTMCell(4, 6), nn.Linear(6, 2)
    sequences = [td.randn(n, 4) for n in (3, 5, 1, 4)]
    parameters = [*cell.parameters(), *head.parameters()]

    def run():
        losses = []
        for xs in sequences:
            h = c = td.zeros(1, 6)
            for x in xs:
                h, c = cell(x[None], (h, c))
            losses.append(nn.functional.cross_entropy(head(h), td.tensor([1])))
        return td.stack(losses).mean()

    wanted = gradients(run(), parameters)
    with td.autobatch() as batch:
        loss = run()
    assert batch.groups < batch.calls / 2
    same(gradients(loss, parameters), wanted)


def test_inside_a_compiled_function_it_changes_nothing():
    p = parameters()
    compiled = td.compile(td.autobatch(loss_of))
    same([compiled(TREES[1:2], *p)], [loss_of(TREES[1:2], *p)])


def test_compiled_functions_and_transforms_inside_a_scope():
    f = td.compile(lambda x: td.tanh(x) * 2)
    g = td.vmap(lambda x: x.sin() + 1)
    x = [td.randn(2, 3) for _ in range(3)]
    expected = [f(t + 1) + g(t * 2) for t in x]
    with td.autobatch():
        made = [f(t + 1) + g(t * 2) for t in x]
    same(made, expected)


def test_autocast_and_inference_mode():
    w = td.randn(4, 4)
    xs = [td.randn(2, 4) for _ in range(3)]
    with td.autocast("cpu"):
        expected = [x @ w for x in xs]
        with td.autobatch():
            made = [x @ w for x in xs]
    assert made[0].dtype is td.bfloat16
    same([m.float() for m in made], [e.float() for e in expected])
    with td.inference_mode(), td.autobatch():
        made = [x @ w for x in xs]
    same(made, [x @ w for x in xs])


def test_two_threads_have_scopes_of_their_own():
    results = {}

    def work(k):
        with td.autobatch():
            results[k] = sum(td.full((3,), float(i)) * k for i in range(20))

    threads = [threading.Thread(target=work, args=(k,)) for k in (1, 2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    same([results[1], results[2]], [td.full((3,), 190.0), td.full((3,), 380.0)])


def test_new_structures_make_no_new_plans():
    p = parameters()

    def plans():
        with td.autobatch():
            loss_of(TREES[::-1] + [((1, 2, 3), (4, (5, 6)), 7), (TREES[0], TREES[1])], *p).backward()
        return sum(f.num_plans for f in [td.add, td.matmul, td.tanh])

    plans()
    first = plans()
    assert plans() == first


def test_a_tensor_read_twice_and_used_later():
    w = td.ones(2, requires_grad=True)
    with td.autobatch():
        a = [w * k for k in (1.0, 2.0)]
        assert a[0].sum().item() == 2.0
        b = [t * t for t in a]
        loss = sum(b).sum()
    loss.backward()
    same([w.grad], [td.full((2,), 10.0)])


@pytest.mark.slow
def test_every_operator_gives_under_autobatch_what_it_gives_alone():
    """What check_op does for a sample of the operators, for all of them."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", "tests/ops"]
    done = subprocess.run(command, env={**os.environ, "CHECK_ONLY": "autobatch"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]


def test_a_tensor_that_goes_while_its_batch_runs():
    """Collected when it has its memory already, but before all groups have run."""

    def batch_plan(*args):
        gc.collect()
        return connect._batch_plan(*args)

    with td.autobatch():
        x = [td.ones(3) * k for k in (2.0, 2.0)]
    td._runtime.set_callback("batch_plan", batch_plan)
    try:
        gc.disable()
        with td.autobatch():
            x = [td.ones(3) * k for k in (2.0, 2.0)]
            cycle = [x[0][1:], x[1]]
            cycle.append(cycle)
            y = [td.roll(td.cosh(t), 2) for t in x]  # no plan of a group yet
            del x, cycle
    finally:
        gc.enable()
        td._runtime.set_callback("batch_plan", connect._batch_plan)
    with td.autobatch():
        z = [t + 1 for t in y]
    same(z, [td.cosh(td.full((3,), k)) + 1 for k in (2.0, 2.0)])


def test_calling_something_that_cannot_be_called():
    with pytest.raises(td.DTypeError, match="cannot be called"):
        td.autobatch(3)


# -- cells: calls that a function makes again and again


class GatedCell(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.gates, self.own = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, children):
        total = td.stack(children).sum(0) if children else td.zeros(6)
        a, b, c = self.gates(x + total).chunk(3)
        return td.sigmoid(a) * td.tanh(b) + self.own(x).reshape(2, 3).T.reshape(6) * c[::1]


def random_tree(rng, depth=0):
    return [random_tree(rng, depth + 1) for _ in range(rng.integers(0, 3 if depth < 4 else 1))]


def gated(tree, cell, x):
    return cell(x, [gated(child, cell, x) for child in tree])


@pytest.fixture
def cell():
    td.manual_seed(3)
    return GatedCell()


def forest(count=30):
    rng = np.random.default_rng(5)
    return [random_tree(rng) for _ in range(count)]


def test_calls_of_a_function_run_as_one_cell_and_nothing_is_compiled_for_a_new_structure(cell, monkeypatch):
    p = list(cell.parameters())
    x = td.randn(6, requires_grad=True)
    trees = forest(60)
    wanted = gradients(sum(gated(tree, cell, x).sum() for tree in trees), [*p, x])
    groups = []
    for _ in range(4):
        with td.autobatch() as batch:
            loss = sum(gated(tree, cell, x).sum() for tree in trees)
        same(gradients(loss, [*p, x]), wanted, 1e-4)
        groups.append(batch.groups)
    sizes = sum(str(tree).count("[") for tree in trees)
    assert batch.calls > 8 * sizes
    assert groups[3] < 150  # most are additions of the sum, one after the other
    compiled = []
    real = td.tracing.compile._compile_plan
    monkeypatch.setattr(td.tracing.compile, "_compile_plan", lambda *args: compiled.append(args[0]) or real(*args))
    with td.autobatch():
        loss = sum(gated(tree, cell, x).sum() for tree in trees[::-1][7:])
        loss.backward()
    assert not compiled


def test_a_result_in_the_middle_of_a_cell_that_somebody_holds_has_a_value_and_a_gradient(cell):
    seen = []

    def one(x):
        y = cell.own(x)
        seen.append(y)
        return td.tanh(y * 2).sum()

    inputs = [td.randn(6) for _ in range(40)]
    for _ in range(4):
        seen.clear()
        with td.autobatch():
            total = sum(one(x) for x in inputs)
            found = td.autograd.grad(total, seen)
        for x, y, g in zip(inputs, seen, found, strict=True):
            same([y], [cell.own(x)])
            same([g], [2 * (1 - td.tanh(2 * y) ** 2)], 1e-4)


def test_results_and_views_of_a_known_sequence_that_are_held_after_all_have_their_gradients(cell):
    """Cells become one call before anybody can tell whether a result inside is asked for later."""
    held = []

    def one(x, keep):
        y = cell.own(x)
        left, right = td.tanh(y).chunk(2)
        if keep:
            held.extend([y, left])
        return (left * right).sum() + (y * y).sum(), y

    inputs = [td.randn(6) for _ in range(40)]

    def run(keep):
        held.clear()
        pairs = [one(x, keep and i % 5 == 0) for i, x in enumerate(inputs)]
        asked = [y for _, y in pairs[::7]] + held
        total = sum(loss for loss, _ in pairs)
        del pairs
        return td.autograd.grad(total, [*asked, *cell.own.parameters()])

    wanted = {keep: run(keep) for keep in (False, True)}
    for keep in (False, False, False, True, False, True):
        same(td.autobatch(run)(keep), wanted[keep], 1e-4)


def test_code_that_turns_off_a_known_sequence_and_comes_back(cell):
    def one(x, turn):
        y = td.tanh(cell.own(x))
        if turn:
            y = td.relu(y) * 3
        return (td.sigmoid(y) * y).sum()

    def run(turns):
        return gradients(sum(one(x, t) for x, t in zip(inputs, turns, strict=True)), list(cell.own.parameters()))

    inputs = [td.randn(6) for _ in range(48)]
    for every in (99, 99, 99, 2, 3, 1, 2, 99):
        turns = [i % every == 0 for i in range(48)]
        same(td.autobatch(run)(turns), run(turns), 1e-4)


def test_hooks_detached_tensors_and_no_grad_inside_a_cell(cell):
    x = td.randn(6)
    called = []

    def one(k, hook):
        y = cell.own(x * k)
        if hook:
            y.register_hook(lambda g: called.append(k) or g * 3)
        z = td.sigmoid(y) * y.detach()
        with td.no_grad():
            scale = td.exp(-y).sum()
        return (z * scale).sum()

    def run():
        return gradients(sum(one(0.1 * k, k % 7 == 0) for k in range(42)), list(cell.own.parameters()))

    wanted = run()
    assert len(called) == 6
    for _ in range(4):
        same(td.autobatch(run)(), wanted, 1e-4)
    assert len(called) == 30


def test_an_error_in_a_cell_names_the_example_and_the_line(cell):
    @td.autobatch
    def one(index):
        y = td.tanh(cell.own(td.ones(6)))
        return (y * 2 + td.take(y * 1, index * 1)).sum()

    for _ in range(4):
        with td.autobatch():
            results = [one(td.tensor(k % 6)) for k in range(20)]
    assert len(results) == 20
    with pytest.raises(td.IndexRangeError, match=r"(?s)example 13.*test_autobatch.py"), td.autobatch():
        results = [one(td.tensor(k % 6 if k != 13 else 99)) for k in range(20)]


def test_cells_in_float16_under_autocast_and_inference_mode(cell):
    trees = forest(25)
    x = td.randn(6)
    for scope in (td.no_grad, td.inference_mode, lambda: td.autocast("cpu", dtype=td.bfloat16)):
        with scope():
            expected = [gated(tree, cell, x) for tree in trees]
            with td.autobatch():
                found = [gated(tree, cell, x) for tree in trees]
        same([y.float() for y in found], [y.float() for y in expected], 2e-2)


# -- tensors that are joined: see Note [Joined rows] in src/autobatch/join.cc


def compiled_names(monkeypatch) -> list:
    names = []
    real = td.tracing.compile._compile_plan
    monkeypatch.setattr(
        td.tracing.compile, "_compile_plan", lambda *args: names.append(args[0].__name__) or real(*args)
    )
    return names


class JoiningCell(nn.Module):
    """Takes any number of states, by cat or by stack."""

    def __init__(self, join):
        super().__init__()
        self.join, self.inner, self.own = join, nn.Linear(5, 5), nn.Linear(5, 5)

    def forward(self, x, states):
        if not states:
            return td.tanh(self.own(x))
        joined = self.join(states)
        return td.tanh(self.own(x) + (td.sigmoid(self.inner(joined)) * joined).sum(0, keepdim=joined.ndim == 2))


def joined_loss(cell, x, trees):
    return sum((gated(tree, cell, x) ** 2).sum() for tree in trees)


@pytest.mark.parametrize("join", [td.cat, td.stack])
def test_states_of_any_number_are_joined_without_a_plan_of_their_own(join, monkeypatch):
    td.manual_seed(1)
    cell = JoiningCell(join)
    x = td.randn(1, 5, requires_grad=True)
    p = [*cell.parameters(), x]
    trees = [[[], []], [[[], []], []], [[], [], []]] * 8
    for _ in range(3):
        with td.autobatch():
            loss = joined_loss(cell, x, trees)
        same(gradients(loss, p), gradients(joined_loss(cell, x, trees), p), 1e-4)
    names = compiled_names(monkeypatch)
    wider = [[[[]] * 4, [[], []]], [[]] * 7, [[[]] * 5, [[]] * 9, []]] * 3 + trees
    with td.autobatch():
        loss = joined_loss(cell, x, wider)
        found = gradients(loss, p)
    assert not [name for name in names if name.startswith(("cat", "concat", "stack", "tanh", "linear"))]
    same(found, gradients(joined_loss(cell, x, wider), p), 1e-4)


def test_joined_tensors_that_are_held_written_to_and_differentiated_twice():
    td.manual_seed(2)
    a, w = td.randn(3, 2, requires_grad=True), td.randn(2, 2, requires_grad=True)

    def program(read):
        rows = [td.tanh(a[i : i + 1] @ w) for i in range(3)]
        pair, triple = td.cat(rows[:2]), td.stack([rows[2], td.ones(1, 2), rows[0]])
        again = td.cat([pair, pair])
        if read:
            assert pair.shape == (2, 2) and triple.shape == (3, 1, 2)
            assert float(td.cat([rows[0]]).sum()) == float(rows[0].sum())
        loss = (again**2).sum() + (triple * triple[0]).sum() + pair[1].sum()
        (g,) = td.autograd.grad(loss, [w], create_graph=True)
        (second,) = td.autograd.grad((g**2).sum(), [a])
        return pair, triple, again, g, second

    with td.autobatch():
        found = program(True)
    same(list(found), list(program(False)), 1e-4)
    with td.autobatch():
        rows = [td.tanh(a[i] @ w) for i in range(3)]
        joined = td.stack(rows)
        first = joined[0] + 1
        with td.no_grad():
            joined.mul_(2)
        assert float((first - joined[0] / 2).sum()) == pytest.approx(2.0)


def test_gradients_that_some_results_of_a_cell_never_get(cell):
    """Roots give their memory to nobody: it gets zeros where others have gradients, and parameters have the same gradients."""
    td.manual_seed(4)
    lstm = nn.LSTMCell(4, 3)
    unused = nn.Linear(3, 3)
    p = [*lstm.parameters(), *unused.parameters()]
    sequences = [td.randn(n, 4) for n in (3, 5, 2, 4)] * 5

    def loss_of(sequences):
        total = 0.0
        for sequence in sequences:
            h, c = td.zeros(3), td.zeros(3)
            for x in sequence:
                h, c = lstm(x, (h, c))
            unused(c)
            total = total + (h**2).sum()
        return total

    for _ in range(3):
        for q in p:
            q.grad = None
        with td.autobatch():
            loss_of(sequences).backward()
        found = [q.grad for q in p]
        for q in p:
            q.grad = None
        loss_of(sequences).backward()
        assert [g is None for g in found] == [q.grad is None for q in p]
        same(found[:4], [q.grad for q in p[:4]], 1e-4)


def test_the_same_view_of_a_parameter_is_shared_by_all_members():
    weight = td.randn(8, 8, requires_grad=True)
    given = [td.randn(8) for _ in range(5)]
    loss_of = lambda: sum(td.tanh(td.tanh(x @ weight.mT) @ weight[:, :4].mT.mT).sum() for x in given)
    loss_of().backward()
    expected, weight.grad = weight.grad, None
    with td.autobatch() as batch:
        loss = loss_of()
    loss.backward()
    same([weight.grad], [expected])
    assert batch.groups <= batch.calls / 2


def test_a_view_of_a_parameter_that_somebody_holds_gets_its_own_gradient():
    weight = td.randn(6, 6, requires_grad=True)
    given = [td.randn(6) for _ in range(4)]
    with td.autobatch():
        views = [weight.mT for _ in given]
        loss = sum(td.tanh(x @ w).sum() for x, w in zip(given, views, strict=True))
    found = td.autograd.grad(loss, [views[1]])[0]
    w = weight.mT
    expected = td.autograd.grad(td.tanh(given[1] @ w).sum(), [w])[0]
    same([found], [expected])


def repeated(calls_of, rounds=4):
    """What calls give with td.autobatch after some rounds, when their sequences are known, and without it."""
    for _ in range(rounds):
        with td.autobatch() as batch:
            found = calls_of()
    return found, calls_of(), batch


def test_a_cell_that_was_learned_with_one_operand_twice_takes_two():
    weight = td.randn(8, 8, requires_grad=True)
    given = [td.randn(8) for _ in range(20)]

    def cell(x, y):
        return td.tanh(td.tanh(x @ weight) * y + x)

    def total(pairs):
        return sum((cell(x, y) ** 2).sum() for x, y in pairs)

    for pairs in (zip(given, given, strict=True), zip(given, reversed(given), strict=True)):
        pairs = list(pairs)
        found, expected, _ = repeated(lambda pairs=pairs: total(pairs))
        same([found], [expected])
        same(gradients(found, [weight]), gradients(expected, [weight]))
    x = td.randn(8)
    found, expected, _ = repeated(lambda: total([(x, y) for y in given]))  # and one that all cells share
    same([found], [expected])


def test_cells_of_one_function_with_other_parameters_are_known_too():
    first, second = (nn.Linear(6, 6) for _ in range(2))
    given = [td.randn(6) for _ in range(16)]

    def cell(layer, x):
        return td.tanh(layer(x)) * td.sigmoid(x)

    def total():
        return sum(cell(second, cell(first, cell(second, x))).sum() for x in given)

    found, expected, batch = repeated(total)
    same([found], [expected])
    weights = [first.weight, second.weight]
    same(gradients(found, weights), gradients(expected, weights))
    assert batch.groups <= len(given) + 4  # additions one after the other; three layers, and the sum


def test_views_inside_a_cell_leave_its_sequence_known():
    layer = nn.Linear(6, 12)
    given = [td.randn(6) for _ in range(16)]

    def cell(x):
        gates = layer(x.unsqueeze(0)).reshape(2, 6)
        a, b = td.sigmoid(gates[0]), td.tanh(gates.mT[:, 1])
        return (a * b).unsqueeze(0).squeeze(0)

    def total():
        return sum(cell(cell(x)).sum() for x in given)

    found, expected, batch = repeated(total)
    same([found], [expected])
    same(gradients(found, [layer.weight]), gradients(expected, [layer.weight]))
    assert batch.groups <= len(given) + 3
    with td.autobatch():
        inside = []

        def kept(x):
            gates = layer(x.unsqueeze(0)).reshape(2, 6)
            inside.append(gates)
            return td.sigmoid(gates[0]) * td.tanh(gates[1])

        loss = sum(kept(x).sum() for x in given)
    (found,) = td.autograd.grad(loss, [inside[3]])
    x = layer(given[3].unsqueeze(0)).reshape(2, 6)
    (expected,) = td.autograd.grad((td.sigmoid(x[0]) * td.tanh(x[1])).sum(), [x])
    same([found], [expected])


def test_an_error_inside_a_known_sequence_names_the_line():
    table, weight = td.randn(5, 4), td.randn(4, 4, requires_grad=True)
    index = [td.tensor([i % 5]) for i in range(20)]

    def cell(i):
        row = td.tanh(table[index[i]] @ weight)
        return td.exp(row) * row

    def total():
        return sum(cell(i).sum() for i in range(20))

    repeated(total)
    index[7] = td.tensor([9])
    with pytest.raises(td.TandemError, match=r"(?s)9.*test_autobatch\.py") as error, td.autobatch():
        total()
    assert "row = td.tanh" in str(error.value) or "in cell" in str(error.value)
    index[7] = td.tensor([0])
    found, expected, _ = repeated(total, 1)
    same([found], [expected])


def test_gradients_stop_at_a_tensor_that_is_detached_inside_a_cell():
    layer = nn.Linear(6, 6)
    given = [td.randn(6) for _ in range(16)]

    def cell(x):
        y = td.tanh(layer(x))
        return y * (y.detach() * 0.5 + 1.0) + td.round(y.detach())

    found, expected, _ = repeated(lambda: sum(cell(cell(x)).sum() for x in given))
    same([found], [expected])
    same(gradients(found, [layer.weight]), gradients(expected, [layer.weight]))


# -- scopes that know the same cells


def chains():
    """A cell, a chain of cells whose inside is held, and vectors; the cell is known."""
    td.manual_seed(0)
    weight = td.randn(6, 6, dtype=td.float64).requires_grad_()
    given = [td.randn(6, dtype=td.float64) for _ in range(40)]

    def cell(x, h, between=None, other=False):
        a = x @ weight
        g = td.tanh(a + h)
        if between is not None:
            between()
        c = g * h
        return ((g + c).sum() * a, g) if other else (td.tanh(c + a), g)

    def chain(count=30):
        h, inside = given[0], []
        for x in given[:count]:
            h, g = cell(x, h)
            inside.append(g)
        return h, inside

    for _ in range(3):
        with td.autobatch():
            total = sum(chain()[0].sum() for _ in range(3))
        total.backward()
    weight.grad = None
    return weight, given, cell, chain


def other_scope(chain):
    """What numbers shapes otherwise than the scope around it, and makes the same cells."""
    with td.autobatch():
        for k in range(4):
            td.ones(k + 2, 3) + 1
        chain(5)


def test_a_scope_inside_makes_the_same_cells_while_cells_wait():
    weight, _, _, chain = chains()
    held = []

    def total():
        h, inside = chain()
        held.append(inside)  # of cells that have to be taken apart
        other_scope(chain)
        return h.sum()

    with td.autobatch():
        found = total()
    expected = total()
    same([found], [expected])
    same(td.autograd.grad(found, [weight, held[0][3]]), td.autograd.grad(expected, [weight, held[1][3]]))


def test_a_scope_inside_makes_the_same_cells_in_the_middle_of_one():
    weight, given, cell, chain = chains()

    def total():
        h = given[0]
        for k, x in enumerate(given):
            h, _ = cell(x, h, lambda: other_scope(chain), other=k % 4 == 1)
        return h.sum()

    with td.autobatch():
        found = total()
    expected = total()
    same([found], [expected])
    same(gradients(found, [weight]), gradients(expected, [weight]))


def test_calls_known_under_one_default_type_are_others_under_another():
    given = [td.arange(6) + k for k in range(40)]

    def total():
        return [(x / 3 + 1).mean() for x in given]

    before = td.get_default_dtype()
    try:
        with td.autobatch():
            first = total()
            td.set_default_dtype(td.float64)
        for _ in range(2):
            with td.autobatch():
                found = total()
            assert {t.dtype for t in found} == {td.float64}
            same(found, total())
        assert first[0].dtype == before
    finally:
        td.set_default_dtype(before)


@pytest.mark.parametrize("shared", [False, True])
def test_calls_before_a_recursion_goes_down_are_taken_when_it_is_back(shared):
    td.manual_seed(0)
    project, inner, table = nn.Linear(5, 5), nn.Linear(5, 5, bias=False), nn.Embedding(9, 5)
    given = td.randn(5).requires_grad_()

    def state(tree):
        token, *children = (tree,) if isinstance(tree, int) else (len(tree), *tree)
        x = table(td.tensor([token % 9]))
        own = project(x) * (x if shared else given)
        states = [state(child) for child in children]
        return td.tanh(own + inner(td.cat(states).sum(0))) if states else td.tanh(own)

    trees = TREES * 6

    def total():
        return sum(state(tree).sum() for tree in trees)

    found, expected, _ = repeated(total)
    same([found], [expected])
    wanted = [*project.parameters(), inner.weight, table.weight, *([] if shared else [given])]
    same(gradients(found, wanted), gradients(expected, wanted))
