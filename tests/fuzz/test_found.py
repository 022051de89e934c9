"""What chance has found, kept so that it stays found."""

import numpy as np
import pytest

import tandem as td


def test_views_of_numbers():
    assert td.flip(False).tolist() is False
    assert td.squeeze(2.5).dtype is td.float32


@pytest.mark.parametrize("shape", [(2, -2, 2), (-3,), (-(2**63),)])
def test_negative_sizes(shape):
    for make in (td.zeros, lambda s: td.tensor(1).expand(s), lambda s: td.tensor(1).reshape(s)):
        with pytest.raises(td.ShapeError):
            make(shape)


def test_sizes_beyond_64_bits():
    for call in (
        lambda: td.zeros((2**62, 4)),
        lambda: td.ones(3).repeat(2**62, 8),
        lambda: td.diag_embed(td.ones(2), -(2**63)),
        lambda: td.arange(5).expand(2**62, 5).contiguous(),
    ):
        with pytest.raises(MemoryError):
            call()
    assert td.roll(td.arange(5), -(2**63)).tolist() == np.roll(np.arange(5), -(2**63) % 5).tolist()


def test_static_arguments_from_numpy():
    x = td.ones((2, 3))
    assert float(td.sum(x, axis=(np.int64(0), np.int32(1)))) == 6
    assert td.sum(x, axis=np.int8(1)).tolist() == [3, 3]
    for axis in (td.tensor(0), [td.tensor(0)], (0, (td.tensor(1),))):
        with pytest.raises(TypeError, match="axis is a tensor"):
            td.sum(x, axis=axis)


def test_one_axis_named_twice():
    with pytest.raises(td.ValueRangeError, match="twice"):
        td.unsqueeze(td.ones(3), (0, 0))


def test_endless_code():
    with pytest.raises(td.ValueRangeError, match="from 0 to 32"):
        td.polygamma(10**30, td.ones(2))
    with pytest.raises(td.ValueRangeError, match="from 1 to 1000"):
        td.mvlgamma(td.ones(1), 2**62)


def test_decompositions_of_what_is_no_matrix():
    for call in (td.svd_lowrank, td.pca_lowrank):
        with pytest.raises(td.DTypeError, match="A is of type NoneType"):
            call(None)
        with pytest.raises(td.ShapeError, match="matrices have two axes"):
            call(td.ones(4), q=3)
        with pytest.raises(td.DTypeError, match="q is of type float"):
            call(td.ones(4, 4), q=2.5)


COMPUTED_ONES = {  # sizes that are computed, and 1 for two rows
    "from the second": lambda x: x + x[1:],
    "without the last": lambda x: x * x[:-1],
    "one": lambda x: x + x[1:2],
    "every other": lambda x: x - x[::2],
    "half": lambda x: td.where(x > 0, x[x.shape[0] // 2 :], x),
    "sum of two": lambda x: td.concat([x[1:], x[2:]]) + x,
    "of a product": lambda x: x[1:] @ x.T + x[:, :1],
    "expanded": lambda x: x[1:].expand(2, 4) @ x.T,
    "gradient": lambda x: td.grad(lambda v: (v * v[1:] * v).sum())(x),
}


@pytest.mark.parametrize("name", COMPUTED_ONES)
def test_computed_sizes_of_one_are_broadcast(name):
    f = COMPUTED_ONES[name]
    x = td.randn(2, 4)
    expected = f(x)
    np.testing.assert_allclose(td.compile(f)(x), expected, rtol=1e-5, atol=1e-6)
    if name not in ("expanded", "gradient"):  # a number of rows, and what td.gradients does in a graph
        with td.Graph() as graph:
            rows = td.placeholder(td.float32, (None, 4))
            out = f(rows)
        np.testing.assert_allclose(td.Session(graph).run(out, {rows: x}), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("run", [lambda f: f(), lambda f: td.compile(f)()])
def test_values_that_do_not_broadcast_are_refused(run):
    for name, call in (
        ("full", lambda: td.full((2, 3), td.tensor([1.0, 2.0]))),
        ("full", lambda: td.full((3,), td.ones(2, 3))),
        ("full", lambda: td.full_like(td.ones(2, 3), td.ones(4))),
        ("full", lambda: td.ones(2, 3).fill_(td.ones(5))),
        ("bernoulli", lambda: td.bernoulli(td.ones(2, 3, 2, 2), td.tensor([0.0, 0.5, 1.0]))),
        ("bernoulli", lambda: td.bernoulli(td.ones(3), td.ones(2, 3))),
    ):
        with pytest.raises(td.ShapeError, match=f"{name}: a tensor of shape .* does not broadcast to"):
            run(call)
    assert run(lambda: td.full((2, 3), td.tensor([1.0, 2.0, 3.0]))).tolist() == [[1, 2, 3], [1, 2, 3]]


@pytest.mark.parametrize("count", [2, 20])
@pytest.mark.parametrize("join", [td.cat, td.stack])
@pytest.mark.parametrize("axis", [2**63, -(10**30)])
def test_axes_beyond_64_bits(join, axis, count):
    parts = [td.ones(2, 3)] * count
    for scope in (td.enable_grad, td.autobatch):
        with scope(), pytest.raises(td.AxisError, match=f"axis {axis} is out of range"):
            join(parts, axis)
