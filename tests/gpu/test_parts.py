"""Programs over the host and a CUDA device: results and gradients are those of the operators one by one; copies overlap kernels."""

import numpy as np
import pytest

import tandem as td

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not td.cuda.is_available(), reason="needs a CUDA device")]


def split_model(x, w, v):
    """Half of it on the device, half on the host."""
    hidden = td.relu(x.cuda() @ w)
    return td.softmax(hidden.cpu() @ v, -1), hidden.sum()


def test_results_are_those_of_eager_calls():
    td.manual_seed(0)
    w, v = td.randn(16, 32, device="cuda"), td.randn(32, 4)
    compiled = td.compile(split_model, whole=True)
    for n in (8, 8, 8, 8, 3, 8):  # plain runs, then recorded graphs
        x = td.randn(n, 16)
        for actual, expected in zip(compiled(x, w, v), split_model(x, w, v), strict=True):
            assert actual.device == expected.device
            np.testing.assert_allclose(actual.cpu().numpy(), expected.cpu().numpy(), rtol=2e-5, atol=1e-5)


def test_a_training_step_with_parameters_on_two_devices():
    def make():
        td.manual_seed(1)
        return [td.randn(16, 32, device="cuda", requires_grad=True), td.randn(32, 4, requires_grad=True)]

    def step(x, w, v):
        probability, total = split_model(x, w, v)
        loss = (probability**2).sum() + 0.01 * total.cpu()
        loss.backward()
        with td.no_grad():
            for p in (w, v):
                p.sub_(p.grad * 0.1)
                p.grad = None
        return loss

    eager, compiled = make(), make()
    fast = td.compile(step, whole=True)
    for k in range(6):
        x = td.randn(8, 16, generator=td.Generator(k))
        a, b = step(x, *eager), fast(x, *compiled)
        assert abs(a.item() - b.item()) < 1e-3
    for a, b in zip(eager, compiled, strict=True):
        np.testing.assert_allclose(a.detach().cpu().numpy(), b.detach().cpu().numpy(), rtol=1e-3, atol=1e-4)


def test_many_transfers_in_flight_keep_their_values():
    def f(xs, w):
        there = [(x.cuda() @ w).sin() for x in xs]
        back = [t.cpu() + 1 for t in there]
        return [(b.cuda() * 2).cpu() for b in back]

    w = td.randn(512, 512, device="cuda") / 20
    compiled = td.compile(f, whole=True)
    for k in range(8):
        xs = [td.randn(512, 512, generator=td.Generator(k * 10 + i)) for i in range(6)]
        if k % 2:
            xs = [x.pin_memory() for x in xs]
        results = compiled(xs, w)
        for x in xs:
            x.zero_()  # the program is done with them
        xs = [td.randn(512, 512, generator=td.Generator(k * 10 + i)) for i in range(6)]
        for actual, expected in zip(results, f(xs, w), strict=True):
            np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=1e-3, atol=1e-3)


def test_inputs_are_copied_before_they_are_written():
    @td.compile(whole=True)
    def f(a, b):
        here, there = b.cpu(), a.cuda()
        a.mul_(2.0)
        b.mul_(3.0)
        return here, there

    for _ in range(6):
        a, b = td.ones(1 << 20).pin_memory(), td.ones(1 << 20, device="cuda")
        here, there = f(a, b)
        assert float(here.sum()) == float(there.sum()) == 1 << 20
        assert float(a.sum()) == 2 << 20 and float(b.sum()) == 3 << 20


def test_loops_and_transforms_with_moves_inside():
    x, w = td.randn(4, 3, 8), td.randn(8, 8, device="cuda")

    def body(c, row):
        c = c + td.tanh((row.cuda() @ w).cpu())
        return c, c.sum()

    def f(x):
        return td.scan(body, td.zeros(3, 8), x)

    expected = f(x)
    for _ in range(3):
        for a, b in zip(expected, td.compile(f)(x), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-5)
    rows = td.vmap(lambda r: (r.cuda() @ w).cpu() * 2)(x)
    np.testing.assert_allclose(rows.numpy(), ((x.cuda() @ w).cpu() * 2).numpy(), rtol=1e-4, atol=1e-4)


def test_a_bad_index_on_the_device_is_told_of():
    f = td.compile(lambda x, i: td.index_select(x.cuda() * 2, 0, i.cuda()).cpu())
    assert f(td.arange(4.0), td.tensor([3])).tolist() == [6.0]
    with pytest.raises(td.IndexRangeError, match="index 9"):
        f(td.arange(4.0), td.tensor([9]))
    assert f(td.arange(4.0), td.tensor([1])).tolist() == [2.0]


def test_a_session_over_the_host_and_the_device():
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (None, 3))
        with td.device("cuda"):
            w = td.Variable(td.ones(3, 2))
            y = td.relu(x @ w)
        with td.device("cpu"):
            v = td.Variable(td.ones(2, 2))
            z = td.softmax(y @ v, -1)
        loss = (z * z).sum()
        grads = td.gradients(loss, [w, v])
        start = td.global_variables_initializer()
    session = td.Session(graph)
    session.run(start)
    data = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    results = session.run([z, *grads], {x: data})
    assert [r.device for r in results] == ["cpu", "cuda:0", "cpu"]
    w2, v2 = td.ones(3, 2, requires_grad=True), td.ones(2, 2, requires_grad=True)
    expected = td.softmax(td.relu(td.tensor(data) @ w2) @ v2, -1)
    (expected * expected).sum().backward()
    for actual, wanted in zip(results, (expected.detach(), w2.grad, v2.grad), strict=True):
        np.testing.assert_allclose(actual.cpu().numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_the_host_computes_while_the_device_does():
    """The profile shows a copy to the device that begins before kernels queued earlier have ended."""
    w = td.randn(4096, 4096, device="cuda") / 64

    @td.compile(whole=True)
    def f(a, x):
        y = a
        for _ in range(20):
            y = td.tanh(y @ w)
        there = (x * 2).cuda()
        return y, there.sum()

    a, x = td.randn(4096, 4096, device="cuda"), td.randn(1 << 24)
    for _ in range(4):
        y, total = f(a, x)
    assert abs(float(total.cpu()) - float((x * 2).sum())) < 1.0
    assert y.device == "cuda:0"
