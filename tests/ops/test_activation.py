import numpy as np
import pytest
import scipy.special as ss

import tandem as td
from tests.check import assert_close, check_op

SHAPES = [(3, 4), (7,), ()]


def sigmoid(x):
    return ss.expit(x)


ALPHA, SCALE = 1.6732632423543772, 1.0507009873554805
CASES = {
    "relu6": ({}, lambda x: np.clip(x, 0, 6)),
    "hardtanh": ({"min_val": -0.7, "max_val": 0.9}, lambda x: np.clip(x, -0.7, 0.9)),
    "leaky_relu": ({"negative_slope": 0.2}, lambda x: np.where(x > 0, x, 0.2 * x)),
    "hardsigmoid": ({}, lambda x: np.clip(x + 3, 0, 6) / 6),
    "hardswish": ({}, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "threshold": ({"threshold": 0.3, "value": -2.0}, lambda x: np.where(x > 0.3, x, -2)),
    "hardshrink": ({"lambd": 0.6}, lambda x: np.where(np.abs(x) > 0.6, x, 0)),
    "softshrink": ({"lambd": 0.6}, lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.6, 0)),
    "elu": ({"alpha": 1.5}, lambda x: np.where(x > 0, x, 1.5 * np.expm1(x))),
    "celu": ({"alpha": 1.5}, lambda x: np.where(x > 0, x, 1.5 * np.expm1(x / 1.5))),
    "selu": ({}, lambda x: SCALE * np.where(x > 0, x, ALPHA * np.expm1(x))),
    "softplus": ({"beta": 2.0}, lambda x: np.logaddexp(2 * x, 0) / 2),
    "logsigmoid": ({}, lambda x: -np.logaddexp(-x, 0)),
    "gelu": ({}, lambda x: x * ss.ndtr(x)),
    "silu": ({}, lambda x: x * sigmoid(x)),
    "mish": ({}, lambda x: x * np.tanh(np.logaddexp(x, 0))),
    "softsign": ({}, lambda x: x / (1 + np.abs(x))),
    "tanhshrink": ({}, lambda x: x - np.tanh(x)),
}


@pytest.mark.parametrize("name", CASES)
def test_activation(name):
    options, reference = CASES[name]
    check_op(
        getattr(td, name), lambda x: reference(x.astype(np.float64)), shapes=SHAPES, kwargs=options, low=-4, high=4
    )


def test_gelu_tanh():
    def reference(x):
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    check_op(td.gelu, reference, shapes=[(3, 4)], kwargs={"approximate": "tanh"})
    with pytest.raises(td.ValueRangeError, match="approximate"):
        td.gelu(td.zeros(1), approximate="sinh")


def test_glu():
    check_op(td.glu, lambda x: x[..., :3] * sigmoid(x[..., 3:]), shapes=[(2, 6), (6,)])
    check_op(td.glu, lambda x: x[:2] * sigmoid(x[2:]), shapes=[(4, 3)], kwargs={"axis": 0})
    with pytest.raises(td.ShapeError, match="even"):
        td.glu(td.zeros(3))


def test_prelu():
    check_op(td.prelu, lambda x, w: np.where(x > 0, x, x * w), shapes=[((3, 4), (1,)), ((3, 4), (4,))])
    check_op(td.prelu, lambda x, w: np.where(x > 0, x, x * w[:, None]), shapes=[((2, 3, 4), (3,))])


def test_large_elements():
    x = td.tensor([-1000.0, 1000.0], requires_grad=True)
    for name in ("elu", "selu", "celu", "softplus", "logsigmoid", "gelu", "silu", "mish"):
        y = getattr(td, name)(x)
        x.grad = None
        y.sum().backward()
        assert np.isfinite(x.grad.numpy()).all() and np.isfinite(y.detach().numpy()).all(), name


def test_in_place():
    x = td.tensor([-1.0, 2.0])
    assert td.leaky_relu_(x, 0.5) is x
    assert_close(x, [-0.5, 2.0])


def test_threshold_lets_nan_through():
    assert np.isnan(td.nn.functional.threshold(td.tensor([float("nan")]), 0.3, -1.0).item())


@pytest.mark.parametrize(("name", "slope"), [("elu", 1.0), ("celu", 1.0), ("selu", SCALE * ALPHA)])
def test_exponential_units_have_their_left_slope_at_zero(name, slope):
    """Half of it before: what relu leaves at zero lost half of its gradient in a unit that follows."""
    x = td.tensor([0.0, -0.0], requires_grad=True)
    getattr(td, name)(x).sum().backward()
    assert_close(x.grad, [slope, slope])
