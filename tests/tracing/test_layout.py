"""Programs lay their values out in one block (src/plan/layout.h)."""

import threading

import numpy as np
import pytest

import tandem as td
from tandem import memory, nn
from tandem.errors import OutOfMemoryError

MIB = 1 << 20


def network(x, w):
    for _ in range(6):
        x = ((x @ w).relu() + x).tanh() @ w
    return x.sum(1)


def sums(x):
    """Without products: what those take beside the block depends on which way was quickest on this machine."""
    for _ in range(6):
        x = (td.cumsum(x.tanh(), 1) + x).tanh()
    return x.sum(1)


@pytest.fixture
def weight():
    td.manual_seed(0)
    return td.randn(256, 256) / 16


def test_one_block_serves_a_run_and_takes_what_the_program_says():
    f = td.compile(sums)
    x = td.randn(4096, 256)
    f(x)
    memory.reset_peak()
    before = memory.stats()
    f(x)
    after = memory.stats()
    assert after["system_allocations"] == before["system_allocations"]
    taken = after["peak_bytes"] - before["live_bytes"]
    assert f.memory()["peak"] <= taken <= 1.05 * f.memory()["peak"]


@pytest.mark.parametrize("sizes", [(64, 3000, 7, 3001, 0, 1, 64)])
def test_every_batch_size_has_a_layout_of_its_own(weight, sizes):
    f = td.compile(network)
    for n in sizes:
        x = td.randn(n, 256)
        np.testing.assert_allclose(f(x, weight).numpy(), network(x, weight).numpy(), rtol=1e-4, atol=1e-4)


def test_convolutions_find_their_working_memory_in_the_block():
    td.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 4, 1)
    )
    x = td.randn(4, 3, 40, 40)

    def gradients(x):
        model.zero_grad()
        model(x).square().mean().backward()
        return [p.grad for p in model.parameters()]

    expected = [g.numpy().copy() for g in gradients(x)]
    for found, wanted in zip(td.compile(gradients)(x), expected, strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-3, atol=1e-5)


def test_other_work_does_not_take_a_piece_of_an_idle_block():
    f = td.compile(sums)
    x = td.randn(8192, 256)
    f(x)
    batches = [td.ones(8192, 256)]
    f(x)
    before = memory.stats()["system_allocations"]
    for _ in range(5):
        batches = [batches[-1], td.ones(8192, 256)]
        f(batches[-1])
    assert memory.stats()["system_allocations"] <= before + 1  # for the second batch


def test_a_larger_batch_adds_to_the_block_of_the_smaller():
    memory.empty_cache()
    before = memory.stats()["reserved_bytes"]
    f = td.compile(sums)
    sizes = (4096, 8192, 16384)
    for n in sizes:
        f(td.ones(n, 256))
    smallest = f.memory()["peak"]
    blocks = [smallest * n // sizes[0] for n in sizes]
    inputs = sum(n * 256 * 4 for n in sizes)
    assert sum(blocks) == 84 * MIB
    assert memory.stats()["reserved_bytes"] - before < inputs + blocks[-1] + 24 * MIB < inputs + sum(blocks)


def test_idle_blocks_serve_others_when_programs_are_over(weight):
    memory.empty_cache()
    f = td.compile(network)
    x = td.randn(32768, 256)
    f(x, weight)
    before = memory.stats()["reserved_bytes"]
    kept = [td.zeros(MIB) for _ in range(24)]  # 96 MiB
    assert len(kept) == 24 and memory.stats()["reserved_bytes"] < before + 64 * MIB
    memory.empty_cache()
    assert memory.stats()["reserved_bytes"] < memory.stats()["live_bytes"] + 8 * MIB


def test_what_does_not_fit_in_one_block_is_tried_piece_by_piece(weight):
    f = td.compile(network)
    x = td.randn(32768, 256)
    f(td.randn(64, 256), weight)
    memory.empty_cache()
    memory.set_limit(memory.stats()["reserved_bytes"] + 40 * MIB)
    try:
        with pytest.raises(OutOfMemoryError, match=r"out of memory: tried to allocate 32\.00 MiB"):
            f(x, weight)
    finally:
        memory.set_limit(0)
    np.testing.assert_allclose(f(x, weight).numpy(), network(x, weight).numpy(), rtol=1e-4, atol=1e-4)


def test_threads_run_one_program_in_blocks_of_their_own(weight):
    f = td.compile(network)
    inputs = [td.randn(512, 256) for _ in range(4)]
    expected = [network(x, weight).numpy() for x in inputs]
    wrong = []

    def work(k):
        for _ in range(10):
            if not np.allclose(f(inputs[k], weight).numpy(), expected[k], rtol=1e-4, atol=1e-4):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_gradients_of_channels_last_activations_lie_as_these_do():
    """A 1-D convolution of points that lie together: reductions over its gradients read one layout, whatever they come in."""
    td.manual_seed(0)
    net = td.nn.Sequential(td.nn.Conv1d(3, 8, 1), td.nn.BatchNorm1d(8), td.nn.ReLU())
    x = td.randn(4, 20, 3).transpose(1, 2).requires_grad_()
    y = net(x)
    assert y.stride() == (160, 1, 8)
    z = td.relu(y)
    (g,) = td.autograd.grad(z, [y], td.ones(4, 8, 20))
    assert g.stride() == y.stride()
    plain = td.ones(4, 8, 20) + y  # what others compute lies row-major
    assert plain.is_contiguous()
