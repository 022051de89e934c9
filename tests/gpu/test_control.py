"""Branches and loops on CUDA devices: the same results as on the CPU, eagerly, in programs and replayed."""

import numpy as np
import pytest

import tandem as td

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not td.cuda.is_available(), reason="needs a CUDA device")]


def both(fn, *arrays, times=1, grad=False):
    """What fn gives on the CPU and, compiled, on the device (after so many calls, so that programs are replayed)."""
    results = []
    for device in ("cpu", "cuda"):
        run = td.compile(fn)
        for _ in range(times if device == "cuda" else 1):
            tensors = [td.tensor(a, device=device) for a in arrays]
            if grad:
                tensors[0].requires_grad_()
            made = run(*tensors)
            made = list(made) if isinstance(made, (tuple, list)) else [made]
            if grad:
                made[0].sum().backward()
                made.append(tensors[0].grad)
        assert all(m.device == device for m in made)
        results.append([m.detach().cpu().numpy() for m in made])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


ROWS = np.random.default_rng(0).normal(size=(9, 33)).astype(np.float32)
SQUARE = (np.random.default_rng(1).normal(size=(33, 33)) / 6).astype(np.float32)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse):
    def fn(x, w):
        return td.scan(lambda c, r: (td.tanh(c @ w + r), c * 2), td.zeros(33, device=x.device), x, reverse=reverse)

    both(fn, ROWS, SQUARE, times=6)


def test_scan_has_gradients():
    both(lambda w, x: td.scan(lambda c, r: (td.tanh(c @ w + r), c), td.zeros(33, device=x.device), x)[1], SQUARE, ROWS,
         times=5, grad=True)  # fmt: skip


def test_a_replayed_scan_follows_batches_and_numbers():
    @td.compile
    def fn(x, k):
        return td.scan(lambda c, r: (c + r * k, c), td.zeros(4, device="cuda"), x)[0]

    for i in range(8):
        x = np.full((5, 4), i + 1.0, np.float32)
        np.testing.assert_allclose(
            fn(td.tensor(x, device="cuda"), 0.5 * i).cpu().numpy(), x.sum(0) * 0.5 * i, rtol=1e-6
        )


def test_while_over_arrays():
    def fn(x):
        return td.while_loop(lambda i, v: (v * v).sum() < 1e4, lambda i, v: (i + 1, v * 1.5 + 0.25), (td.tensor(0), x))

    both(fn, ROWS, times=3)


def test_a_while_over_single_elements_is_one_kernel():
    def fn(x):
        return td.while_loop(lambda i, v: i < 100_000, lambda i, v: (i + 1, v + 1.0), (td.tensor(0), x))

    both(fn, np.float32(0.5), times=2)


def test_while_has_gradients():
    def fn(x):
        return td.while_loop(lambda v: v.sum() < 50.0, lambda v: v * v + 0.5, x)

    both(fn, np.full(5, 0.9, np.float32), grad=True)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_cond(sign):
    def fn(x):
        return td.cond(x.sum() > 0, lambda v: v.exp(), lambda v: v * 3, x)

    both(fn, np.full((3, 5), sign, np.float32), times=4)
    both(fn, np.full((3, 5), sign, np.float32), grad=True)


def test_random_numbers_in_loops_are_those_of_the_cpu():
    def draw(device):
        td.manual_seed(4)
        fn = td.compile(
            lambda: td.scan(lambda c, _: (c, td.rand(7, device=device) + c), td.zeros(7, device=device), length=5)
        )
        return fn()[1].cpu().numpy()

    np.testing.assert_array_equal(draw("cpu"), draw("cuda"))


def test_an_lstm_matches_the_cpu():
    def run(device):
        td.manual_seed(0)
        lstm = td.nn.LSTM(8, 16, num_layers=2).to(device)
        x = td.randn(12, 3, 8).to(device)
        step = td.compile(lambda: lstm(x)[0].square().mean())
        for _ in range(4):
            lstm.zero_grad()
            loss = step()
        loss.backward()
        return [loss.detach().cpu().numpy(), *(p.grad.cpu().numpy() for p in lstm.parameters())]

    for a, b in zip(run("cpu"), run("cuda"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
