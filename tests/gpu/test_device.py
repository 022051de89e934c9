"""CUDA devices: tensors move, memory is counted, streams and events are in order, errors name their culprit."""

import itertools

import numpy as np
import pytest

import tandem as td

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not td.cuda.is_available(), reason="needs a CUDA device")]


def test_tensors_move_there_and_back():
    x = td.randn(3, 4)
    y = x.to("cuda")
    assert y.device == "cuda:0"
    assert y.is_cuda
    assert bool(td.equal(x, y.cpu()).all())
    assert y.to("cuda") is y
    assert y.to(td.float64).device == "cuda"
    assert y.tolist() == x.tolist()
    assert float(y[1, 2]) == float(x[1, 2])
    z = x.T.cuda()
    assert z.strides == x.T.strides
    assert bool(td.equal(z.cpu(), x.T).all())
    assert bool(td.equal(y[:, ::2].cpu(), x[:, ::2]).all())


def test_numpy_needs_host_memory():
    with pytest.raises(td.DeviceError, match="cpu"):
        td.ones(2, device="cuda").numpy()


def test_new_tensors_are_made_where_asked():
    assert td.zeros(2, device="cuda").device == "cuda"
    with td.device("cuda"):
        assert td.ones(3).device == "cuda"
        assert td.tensor([1, 2]).device == "cuda"
        assert td.rand(3).device == "cuda"
    assert td.ones(3).device == "cpu"
    assert td.zeros_like(td.ones(3, device="cuda")).device == "cuda"


def test_different_devices_are_an_error_but_numbers_go_along():
    x = td.ones(3, device="cuda")
    with pytest.raises(td.DeviceError, match="different devices"):
        x + td.ones(3)
    assert (x + td.tensor(2.0)).tolist() == [3.0, 3.0, 3.0]
    assert (x * 2 + 1).tolist() == [3.0, 3.0, 3.0]


def test_random_numbers_are_those_of_the_cpu():
    td.manual_seed(3)
    here = td.randn(1000)
    td.manual_seed(3)
    there = td.randn(1000, device="cuda")
    np.testing.assert_array_equal(here.numpy(), there.cpu().numpy())


def test_a_bad_index_is_reported_with_operator_value_and_bound():
    table = td.ones(5, 2, device="cuda")
    index = td.tensor([0, 7], device="cuda")
    with pytest.raises(td.IndexRangeError, match=r"7.*5"):
        table[index].cpu()
    assert table[td.tensor([1], device="cuda")].tolist() == [[1.0, 1.0]]


def test_weights_that_are_none_are_reported():
    for weights, message in (([0.0, 0.0], "all 0"), ([1.0, -1.0], "negative")):
        with pytest.raises(td.ValueRangeError, match=f"multinomial.*{message}"):
            td.multinomial(td.tensor(weights, device="cuda"), 1).cpu()
    assert td.multinomial(td.tensor([0.0, 1.0], device="cuda"), 1).tolist() == [1]


def test_memory_is_given_back_and_counted():
    td.cuda.synchronize()
    before = td.cuda.memory_allocated()
    x = td.zeros(1 << 20, device="cuda")
    assert td.cuda.memory_allocated() - before == 4 << 20
    del x
    assert td.cuda.memory_allocated() == before
    td.cuda.empty_cache()


def test_out_of_memory_names_the_largest_tensors_and_leaves_the_process_usable():
    big = td.zeros(1 << 22, device="cuda")
    with pytest.raises(td.OutOfMemoryError, match=r"(?s)cuda:0.*largest: 16"):
        td.empty(1 << 40, device="cuda")
    assert float((big + 1).sum()) == float(1 << 22)


def test_streams_wait_for_one_another():
    side = td.cuda.Stream()
    x = td.ones(1 << 20, device="cuda")
    side.wait_stream(td.cuda.current_stream())
    with td.cuda.stream(side):
        y = x * 3
    x.record_stream(side)
    td.cuda.current_stream().wait_stream(side)
    assert float(y.sum()) == 3 * (1 << 20)
    start, end = td.cuda.Event(enable_timing=True), td.cuda.Event(enable_timing=True)
    start.record()
    x + 1
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0


def test_pinned_memory_copies_without_waiting():
    x = td.randn(1 << 16).pin_memory()
    assert x.is_pinned()
    y = x.to("cuda", non_blocking=True)
    assert bool(td.equal(y.cpu(), x).all())


def test_gradients_cross_devices():
    x = td.ones(3, requires_grad=True)
    (x.cuda() * 2).sum().cpu().backward()
    assert x.grad.device == "cpu"
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("compiled", [False, True])
def test_training_matches_the_cpu(compiled):
    def train(device):
        td.manual_seed(0)
        model = td.nn.Sequential(
            td.nn.Conv2d(3, 8, 3, padding=1), td.nn.BatchNorm2d(8), td.nn.ReLU(), td.nn.MaxPool2d(2), td.nn.Flatten(),
            td.nn.Linear(8 * 8 * 8, 10),
        ).to(device)  # fmt: skip
        optimizer = td.optim.Adam(model.parameters(), lr=1e-3)
        x, y = td.randn(4, 3, 16, 16).to(device), td.tensor([1, 2, 3, 4]).to(device)

        def step():
            optimizer.zero_grad()
            loss = td.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = td.compile(step) if compiled else step
        return [float(run()) for _ in range(5)]

    np.testing.assert_allclose(train("cpu"), train("cuda"), rtol=2e-3)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 100, 64), (1, 2, 64, 32), (2, 1, 257, 16), (1, 1, 130, 128)])
def test_attention_in_sixteen_bits(shape, causal):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(np.float32) for _ in range(4)]
    want = [td.tensor(a, requires_grad=True) for a in arrays[:3]]
    have = [td.tensor(a, device="cuda").to(td.bfloat16).requires_grad_() for a in arrays[:3]]
    g = td.tensor(arrays[3])
    for tensors, incoming in ((want, g), (have, g.cuda().to(td.bfloat16))):
        out = td.scaled_dot_product_attention(*tensors, is_causal=causal)
        out.backward(incoming)
        tensors.append(out)
    for a, e in zip([have[3], *(t.grad for t in have[:3])], [want[3], *(t.grad for t in want[:3])], strict=True):
        a, e = a.detach().cpu().to(td.float32).numpy(), e.detach().numpy()
        assert np.abs(a - e).max() < 0.02 * max(np.abs(e).max(), 1)
        assert np.linalg.norm(a - e) < 0.012 * np.linalg.norm(e)


def test_autocast_runs_products_in_sixteen_bits():
    x, w = td.randn(64, 64, device="cuda"), td.randn(64, 64, device="cuda", requires_grad=True)
    with td.autocast("cuda", td.bfloat16):
        y = x @ w
        assert y.dtype is td.bfloat16
        loss = (y * y).mean()
    loss.backward()
    assert w.grad.dtype is td.float32
    assert (x @ w).dtype is td.float32


def test_a_replayed_program_follows_numbers_and_batches():
    w = td.ones(64, device="cuda")

    @td.compile
    def step(x, rate):
        w.add_(x.sum(0) * rate)
        return (w * x).sum()

    expected = np.ones(64)
    for i in range(12):
        x = np.full((8, 64), i + 1.0, dtype=np.float32)
        rate = 0.1 * (i + 1)
        expected = expected + x.sum(0) * rate
        out = step(td.tensor(x, device="cuda"), rate)
        np.testing.assert_allclose(float(out), (expected * x).sum(), rtol=1e-4)
    np.testing.assert_allclose(w.cpu().numpy(), expected, rtol=1e-4)
    td.manual_seed(0)
    noise = td.compile(lambda: td.rand(1000, device="cuda") + 0)
    seen = [noise().cpu().numpy() for _ in range(6)]
    assert all(not np.array_equal(a, b) for a, b in itertools.pairwise(seen))


def test_an_integer_divided_by_zero_is_told_when_the_device_is_waited_for():
    x, y = td.tensor([4, 6], device="cuda"), td.tensor([2, 0], device="cuda")
    with pytest.raises(ZeroDivisionError, match="an integer is divided by zero"):
        x // y
        td.cuda.synchronize()


@pytest.mark.parametrize("compiled", [False, True])
def test_copies_cross_devices_with_gradients(compiled):
    source = td.randn(3, device="cuda", requires_grad=True)

    def write(source):
        return td.zeros(2, 3).copy_(source * 2)

    target = (td.compile(write) if compiled else write)(source)
    assert target.device == "cpu"
    (target * td.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert source.grad.device == "cuda:0"
    assert source.grad.tolist() == [4, 8, 12]
    assert target.tolist() == [(source * 2).tolist()] * 2
    kept = td.zeros(3, device="cuda")
    kept[1:] = td.ones(2)
    kept[0] = 5
    assert kept.tolist() == [5, 1, 1]


def test_gradients_are_clipped_where_they_are():
    parameters = [td.nn.Parameter(td.ones(2, device=d)) for d in ("cuda", "cpu", "cuda")]
    for p in parameters:
        p.grad = td.full((2,), 2.0, device=p.device)
    assert td.nn.utils.clip_grad_norm_(parameters, 1.0).item() == pytest.approx(24**0.5)
    for p in parameters:
        assert p.grad.tolist() == pytest.approx([2 / 24**0.5] * 2, rel=1e-5)
