import numpy as np
import pytest

import tandem as td
from tests.check import assert_close, check_gradients, check_op

RNG = np.random.default_rng(5)


def standard(x, axes, eps=1e-5):
    x = x.astype(np.float64)
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def per_channel(v, ndim):
    return v.reshape((1, -1) + (1,) * (ndim - 2))


def test_layer_norm():
    shapes = [((3, 4), (4,), (4,)), ((2, 3, 4), (4,), (4,))]
    check_op(lambda x, w, b: td.layer_norm(x, (4,), w, b), lambda x, w, b: standard(x, -1) * w + b, shapes=shapes,
             dtypes=("float32", "bfloat16"), names=["layer_norm"], rtol=1e-4, atol=1e-2)  # fmt: skip
    check_op(
        lambda x: td.layer_norm(x, (3, 4)), lambda x: standard(x, (1, 2)), shapes=[(2, 3, 4)], rtol=1e-4, atol=1e-5
    )
    with pytest.raises(td.ShapeError, match="must end in"):
        td.layer_norm(td.zeros(2, 3), 4)


def test_rms_norm():
    def reference(x, w):
        return x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-3) * w

    check_op(lambda x, w: td.rms_norm(x, 4, w, 1e-3), reference, shapes=[((3, 4), (4,))], names=["rms_norm"])


@pytest.mark.parametrize("shape", [(6, 3), (2, 3, 4), (2, 3, 2, 3)])
def test_batch_norm_training(shape):
    axes = tuple(i for i in range(len(shape)) if i != 1)
    mean, var = np.array([0.5, 0.0, -1.0], np.float32), np.array([1.0, 2.0, 0.5], np.float32)
    x = RNG.normal(1, 2, shape).astype(np.float32)
    running = td.tensor(mean), td.tensor(var)
    y = td.batch_norm(td.tensor(x), *running, training=True, momentum=0.2)
    assert_close(y, standard(x, axes), rtol=1e-4, atol=1e-5)
    assert_close(running[0], mean * 0.8 + x.mean(axes) * 0.2)
    assert_close(running[1], var * 0.8 + x.var(axes, ddof=1) * 0.2)
    w, b = RNG.normal(size=3), RNG.normal(size=3)
    check_gradients(lambda x, w, b: td.batch_norm(x, None, None, w, b, training=True), (x.astype(np.float64), w, b))


def test_batch_norm_evaluation():
    x, m, v = RNG.normal(size=(2, 3, 4)), RNG.normal(size=3), RNG.uniform(0.5, 2, 3)
    w, b = RNG.normal(size=3), RNG.normal(size=3)

    def reference(x, m, v, w, b):
        m, v, w, b = (per_channel(a, 3) for a in (m, v, w, b))
        return (x - m) / np.sqrt(v + 1e-5) * w + b

    check_op(td.batch_norm, reference, inputs=[(x, m, v, w, b)], names=["batch_norm"])
    with pytest.raises(td.ValueRangeError, match="running_mean"):
        td.batch_norm(td.zeros(2, 3))
    with pytest.raises(td.ShapeError, match="no variance"):
        td.batch_norm(td.zeros(1, 3), training=True)


def test_group_norm():
    x, w, b = (
        RNG.normal(size=(2, 4, 3)).astype(np.float32),
        RNG.normal(size=4).astype(np.float32),
        RNG.normal(size=4).astype(np.float32),
    )

    def reference(x, w, b):
        return standard(x.reshape(2, 2, 2, 3), (2, 3)).reshape(x.shape) * per_channel(w, 3) + per_channel(b, 3)

    check_op(
        lambda x, w, b: td.group_norm(x, 2, w, b),
        reference,
        inputs=[(x, w, b)],
        names=["group_norm"],
        rtol=1e-4,
        atol=1e-5,
    )


def test_instance_norm():
    x = RNG.normal(size=(2, 3, 4)).astype(np.float32)
    check_op(td.instance_norm, lambda x: standard(x, 2), inputs=[(x,)], rtol=1e-4, atol=1e-5)
    mean, var = td.zeros(3), td.ones(3)
    td.instance_norm(td.tensor(x), mean, var, momentum=1.0)
    assert_close(mean, x.mean((0, 2)))
    assert_close(var, x.var(2, ddof=1).mean(0))


def test_normalize():
    check_op(td.normalize, lambda x: x / np.linalg.norm(x, axis=1, keepdims=True), shapes=[(3, 4)])


def test_normalize_along_several_axes():
    x = td.tensor([[3.0, 0.0], [0.0, 4.0]])
    assert td.allclose(td.nn.functional.normalize(x, dim=(-2, -1)), x / 5)


@pytest.mark.parametrize("call", [
    lambda x: td.nn.functional.layer_norm(x, (0,)), lambda x: td.nn.functional.rms_norm(x, (0,)),
    lambda x: td.nn.functional.normalize(x, dim=1), lambda x: td.softmax(x, 1),
    lambda x: td.nn.functional.group_norm(x[:, None].expand(x.shape[0], 4, 0), 2),
], ids=["layer_norm", "rms_norm", "normalize", "softmax", "group_norm"])  # fmt: skip
@pytest.mark.parametrize("compiled", [False, True])
def test_rows_without_elements_are_not_walked_through(call, compiled):
    """However many: a walk over 10^12 of them would take minutes."""
    call = td.compile(call) if compiled else call
    for rows in (4, 10**12):
        assert call(td.zeros(0, rows).T).size == 0
