"""Kernels that run on blocks of products (tandem/codegen/epilogues.py): which do, and that results are those of eager code."""

import numpy as np
import pytest

import tandem as td
from tandem.codegen import EpilogueStep, KernelStep, lower
from tandem.codegen.cpu.target import CPU
from tandem.codegen.epilogues import needed_between
from tandem.codegen.order import Uses, writes_input


@pytest.fixture(autouse=True)
def small_updates_too(monkeypatch):
    monkeypatch.setattr(CPU.costs, "update_bytes", 0)


pytestmark = pytest.mark.usefixtures("own_products")


def floats(*shape, seed=0):
    return td.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def joined(fn) -> list[EpilogueStep]:
    return [s for s in fn.graph().schedule.steps if isinstance(s, EpilogueStep)]


def check(body, *inputs, count=1):
    """The compiled function, after its results were compared with eager ones."""
    fn = td.compile(body)
    expected, actual = body(*inputs), fn(*inputs)
    expected, actual = (r if isinstance(r, tuple) else (r,) for r in (expected, actual))
    for e, a in zip(expected, actual, strict=True):
        np.testing.assert_allclose(a.numpy(), e.numpy(), rtol=1e-5, atol=1e-4)
    assert len(joined(fn)) == count, fn.graph().schedule
    return fn


SIZES = [
    (256, 512, 40),  # few rows
    (100, 333, 70),  # odd ones
    (300, 130, 1000),  # many rows, in several slices
    (601, 517, 33),  # many rows, one slice, strips that end early
    (1003, 901, 304),  # the same beside packing
    (1003, 421, 912),
    (17, 2000, 8200),  # longer than working memory is made for
]


@pytest.mark.parametrize("m, n, k", SIZES)
def test_activation(m, n, k):
    fn = check(lambda x, w, b: td.relu(x @ w + b), floats(m, k), floats(k, n, seed=1), floats(n, seed=2))
    (step,) = joined(fn)
    assert not step.keeps and step.slot in range(2)
    assert "matmul then" in repr(step) and len(fn.graph().schedule.steps) == 1
    assert fn.memory()["peak"] == m * n * 4  # the product's result has no memory


@pytest.mark.parametrize("m, n, k", SIZES)
def test_results_that_are_wanted_are_kept(m, n, k):
    def body(x, w):
        y = x @ w
        return y, td.tanh(y)

    (step,) = joined(check(body, floats(m, k), floats(k, n, seed=1)))
    assert step.keeps


@pytest.mark.parametrize("transposed", ["nn", "nt", "tn"])
def test_transposed_operands(transposed):
    a, b = (200, 300), (300, 400)
    x = floats(*(a[::-1] if transposed[0] == "t" else a))
    w = floats(*(b[::-1] if transposed[1] == "t" else b), seed=1)

    def body(x, w, other):
        x, w = (v.mT if t == "t" else v for v, t in zip((x, w), transposed))
        return (x @ w) * 0.5 + other

    check(body, x, w, floats(200, 400, seed=2))


def test_rows_that_are_several_axes():
    """What is added is broadcast along one of them: rows are counted in two digits."""
    check(lambda x, w, p: td.gelu(x @ w) + p, floats(3, 50, 64), floats(64, 300, seed=1), floats(50, 300, seed=2))


def test_whole_results_after_batches():
    """Many matrices are not computed block by block here."""
    check(lambda x, w: td.exp(-td.abs(x @ w)), floats(5, 90, 64), floats(5, 64, 100, seed=1))


def test_new_sizes():
    fn = check(lambda x, w: td.sigmoid(x @ w), floats(200, 64), floats(64, 300, seed=1))
    for m in (64, 1, 0, 701):
        x = floats(m, 64, seed=m)
        np.testing.assert_allclose(
            fn(x, floats(64, 300, seed=1)).numpy(), td.sigmoid(x @ floats(64, 300, seed=1)).numpy(), atol=1e-5
        )


def test_skip():
    with td.switches(SKIP="epilogues"):
        check(lambda x, w: td.relu(x @ w) + 1, floats(200, 64), floats(64, 300), count=0)


def test_not_joined():
    x, w = floats(256, 256), floats(256, 256, seed=1)
    check(lambda x, w: td.flip(x @ w, [0]) * 2, x, w, count=0)  # elements from elsewhere
    check(lambda x, w: td.relu((x @ w).mT), x, w)  # the result of relu lies as the product does
    check(lambda x, w: td.relu((x @ w).mT) + td.flip(x, [0, 1]) * x, x, w, count=0)
    check(lambda x, w: td.sum(x @ w, 0), x, w, count=0)  # no elementwise kernel
    check(lambda x, w: td.relu(x @ w), floats(8, 8), floats(8, 8), count=0)  # small
    wide = [td.asarray(v, dtype=td.float64) for v in (x, w)]
    check(lambda x, w: td.relu(x @ w), *wide, count=0)

    def both(x, w):
        y = x @ w
        return y + td.flip(y, [1])

    check(both, x, w, count=0)


def test_operands_of_the_product_are_not_written():
    """Other threads may still read them."""
    start = floats(256, 256, seed=1)
    x = floats(256, 256)

    def body(w):
        w += td.tanh(x @ w)
        return td.sum(w)

    results = []
    for make in (lambda f: f, td.compile):
        w = td.asarray(start, copy=True)
        fn = make(body)
        fn(w)
        results.append(w.numpy())
    assert not joined(fn)
    np.testing.assert_array_equal(*results)


def training(momentum, keep_gradients=False):
    td.manual_seed(0)
    model = td.nn.Sequential(td.nn.Linear(300, 200), td.nn.ReLU(), td.nn.Linear(200, 190))
    optimizer = td.optim.Adam(model.parameters(), lr=1e-2) if momentum else td.optim.SGD(model.parameters(), lr=1e-2)

    def step(x, y):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        if not keep_gradients:
            optimizer.zero_grad()
        return loss

    return model, step


@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_updates_of_parameters(momentum, keep):
    x, y = floats(260, 300), floats(260, 190, seed=1)
    runs = []
    for compiled in (False, True):
        model, step = training(momentum, keep)
        run = td.compile(step) if compiled else step
        losses = [float(run(x[:n], y[:n])) for n in (260, 260, 200, 37, 1)]
        runs.append((losses, [p.detach().numpy() for p in model.parameters()]))
        if keep:
            runs[-1][1].extend(p.grad.numpy() for p in model.parameters())
    steps = joined(run)
    updates = [s for s in steps if any(b.kind == "input" for b in s.outputs)]
    assert len(updates) == 2
    assert all(s.keeps == keep for s in updates)
    np.testing.assert_allclose(runs[0][0], runs[1][0], rtol=1e-5)
    for a, b in zip(runs[0][1], runs[1][1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_same_bits_with_and_without_and_by_threads():
    x, y = floats(260, 300), floats(260, 190, seed=1)
    before, results = td.get_num_threads(), []
    try:
        for skip, threads in (("", before), ("epilogues", before), ("", 1), ("", 3)):
            td.set_num_threads(threads)
            with td.switches(SKIP=skip):
                model, step = training(True)
                run = td.compile(step)
                for _ in range(3):
                    run(x, y)
            results.append([p.detach().numpy() for p in model.parameters()])
    finally:
        td.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_norm_of_all_gradients_comes_first():
    """An update that needs the whole gradient cannot begin with a part of it."""
    td.manual_seed(0)
    model = td.nn.Linear(300, 200)
    optimizer = td.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        td.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    before = [p.detach().numpy().copy() for p in model.parameters()]
    run = td.compile(step)
    run(floats(100, 300))
    after = [p.detach().numpy() for p in model.parameters()]
    moved = np.sqrt(sum(((a - b) ** 2).sum() for a, b in zip(before, after)))
    np.testing.assert_allclose(moved, 0.1, rtol=1e-4)


def test_small_parameters_are_updated_apart(monkeypatch):
    monkeypatch.undo()
    _, step = training(True)
    run = td.compile(step)
    run(floats(260, 300), floats(260, 190, seed=1))
    assert not any(b.kind == "input" for s in joined(run) for b in s.outputs)


def test_updates_do_not_pass_what_may_fail():
    """A step that fails must not have written anything that eager code would not have written."""
    x = floats(256, 256)

    def body(w, c):
        root = td.linalg.cholesky(c)
        w -= 0.1 * (x.mT @ x)
        return root

    w = td.asarray(floats(256, 256, seed=1), copy=True)
    before = w.numpy().copy()
    fn = td.compile(body)
    fn(td.asarray(w, copy=True), td.eye(256))
    assert len(joined(fn)) == 1
    with pytest.raises(td.linalg.LinAlgError):
        fn(w, -td.eye(256))
    np.testing.assert_array_equal(w.numpy(), before)


@pytest.mark.parametrize("checked", [True, False])
def test_updates_pass_scatters_whose_positions_were_checked(checked):
    """The gradient of an embedding comes last, after products whose updates it would hold back."""
    td.manual_seed(0)
    table, w = td.asarray(floats(50, 256), copy=True), td.asarray(floats(256, 256, seed=1), copy=True)

    def body(index):
        rows = td.take(table, index, axis=0) if checked else floats(300, 256)
        gradient = rows.mT @ rows
        w.sub_(0.1 * (gradient + w))
        table.index_add_(0, index, rows @ gradient)

    run = td.compile(body)
    index = td.arange(300) % 50
    before = [v.numpy().copy() for v in (table, w)]
    run(index)
    after = [v.numpy().copy() for v in (table, w)]
    for v, b in zip((table, w), before):
        v.copy_(td.from_numpy(b))
    body(index)
    for v, a in zip((table, w), after):
        np.testing.assert_allclose(v.numpy(), a, rtol=1e-4, atol=1e-2)


def test_updates_stay_where_gradients_are_made():
    """Only what may fail goes before them, which the gradient of an embedding that was looked up cannot."""
    other, w = floats(256, 256, seed=2), td.asarray(floats(256, 256, seed=1), copy=True)
    table = td.asarray(floats(50, 256), copy=True).requires_grad_()

    def body(index):
        rows = td.nn.functional.embedding(index, table)
        with td.no_grad():
            w.sub_(0.1 * (rows.mT @ rows + w))
        (rows @ other).square().sum().backward()
        with td.no_grad():
            table.sub_(0.1 * table.grad)
        table.grad = None

    run = td.compile(body)
    run(td.arange(300) % 50)
    steps = run.graph().schedule.steps
    (scatter,) = (s for s in steps if getattr(s, "routine", "") == "scatter")
    (update,) = (s for s in joined(run) if writes_input(s))
    assert steps.index(update) < steps.index(scatter)


def test_printed(capsys):
    with td.switches(PRINT="epilogues"):
        check(lambda x, w: td.relu(x @ w) * 5, floats(256, 64), floats(64, 256, seed=1))
    assert "<matmul then" in capsys.readouterr().out


def test_order_of_steps():
    """(reads, writes): 0 the product, 4 the kernel; 2 must come first for the kernel's sake, 3 may wait."""

    def uses(*sets):
        return [Uses(reads, writes, waits, [node], False) for node, (reads, writes, waits) in enumerate(sets)]

    steps = [({1, 2}, {3}, ()), ({7}, {8}, ()), ({4}, {5}, ()), ({3}, {6}, ()), ({3, 5}, {9}, set())]
    assert needed_between(uses(*steps), 0, 4) == [2]
    steps[4] = ({3, 5}, {9}, {1})  # it waits for step 1
    assert needed_between(uses(*steps), 0, 4) == [1, 2]
    steps[2] = ({3}, {5}, ())  # which the product must precede
    assert needed_between(uses(*steps), 0, 4) is None
    chain = uses(({1}, {2}, ()), ({3}, {4}, ()), ({4}, {5}, ()), ({2, 5}, {6}, ()))
    assert needed_between(chain, 0, 3) == [1, 2]


def test_kernels_of_plans_stay_alone():
    """Only whole programs are looked through."""
    import inspect

    assert inspect.signature(lower).parameters["epilogues"].default is False


def test_second_process_form():
    """A stored program has its epilogues."""
    fn = check(lambda x, w: td.relu(x @ w) * 3, floats(256, 64), floats(64, 256, seed=1))
    assert all(not isinstance(s, KernelStep) for s in fn.graph().schedule.steps)
    again = td.compile(lambda x, w: td.relu(x @ w) * 3)
    x, w = floats(256, 64), floats(64, 256, seed=1)
    np.testing.assert_array_equal(again(x, w).numpy(), fn(x, w).numpy())


def test_picture():
    fn = check(lambda x, w: td.relu(x @ w) * 2, floats(256, 64), floats(64, 256, seed=1))
    assert "matmul then" in fn.graph().view()


def test_a_derivative_is_kept_in_place_of_what_it_is_made_of():
    """Of gelu(x), for backward: gelu'(x), not x and the integral."""

    def body(x, w, v, g):
        return td.autograd.grad((td.gelu(x @ w) @ v * g).sum(), [x, w, v])

    x, w = floats(200, 96).requires_grad_(), floats(96, 256, seed=1).requires_grad_()
    v = floats(256, 64, seed=2).requires_grad_()
    fn = check(body, x, w, v, floats(200, 64, seed=3), count=2)
    forward = next(s for s in joined(fn) if "erf" in repr(s))
    assert not forward.keeps and len(forward.outputs) == 2, forward  # the activation and its derivative


def test_a_shared_value_that_others_read_stays():
    def body(x, w, v):
        y = x @ w
        e = td.erf(y)
        return (y * e) @ v, e.exp() * 2.0 + y, td.sin(e + y)

    check(body, floats(200, 96), floats(96, 256, seed=1), floats(256, 64, seed=2), count=1)
