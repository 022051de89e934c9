"""Initial values of parameters. Every function fills a tensor in place, without recording, and returns it."""

from __future__ import annotations

import math

from tandem import _runtime, dtypes
from tandem.autograd.modes import no_grad
from tandem.nn.older_names import older_name
from tandem.ops import eye as _eye
from tandem.ops import randperm as _randperm

_GAINS = {
    "linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "conv_transpose1d": 1.0, "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4,
}  # fmt: skip


def calculate_gain(nonlinearity: str, param=None) -> float:
    """How much a nonlinearity's input should be scaled so that its output keeps its spread.

    >>> td.nn.init.calculate_gain("tanh")
    1.6666666666666667
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope * slope))
    if nonlinearity not in _GAINS:
        raise ValueError(f"there is no gain for {nonlinearity!r}; known are leaky_relu, {', '.join(_GAINS)}")
    return _GAINS[nonlinearity]


def _fans(tensor) -> tuple[int, int]:
    if tensor.ndim < 2:
        raise ValueError(f"fan-in and fan-out are those of a tensor with two axes or more; this one is {tensor.shape}")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


_calculate_fan_in_and_fan_out = _fans  # the name that models written for PyTorch import


def _calculate_correct_fan(tensor, mode: str) -> int:
    return _fans(tensor)[["fan_in", "fan_out"].index(mode.lower())]


def _fan(tensor, mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"mode is {mode!r}; it must be 'fan_in' or 'fan_out'")
    return _fans(tensor)[mode == "fan_out"]


@no_grad()
def uniform_(tensor, a: float = 0.0, b: float = 1.0, generator=None):
    """Numbers evenly distributed over [a, b)."""
    return tensor.uniform_(float(a), float(b), generator=generator)


@no_grad()
def normal_(tensor, mean: float = 0.0, std: float = 1.0, generator=None):
    """Normally distributed numbers."""
    return tensor.normal_(float(mean), float(std), generator=generator)


@no_grad()
def trunc_normal_(tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator=None):
    """Normally distributed numbers of which those outside [a, b] are drawn again."""

    def below(x):
        return (1.0 + math.erf((x - mean) / (std * math.sqrt(2.0)))) / 2.0

    low, high = below(a), below(b)
    # Inverse transform: uniform over what the distribution function takes on [a, b].
    tensor.uniform_(2 * low - 1, 2 * high - 1, generator=generator)
    return tensor.erfinv_().mul_(std * math.sqrt(2.0)).add_(float(mean)).clip_(float(a), float(b))


@no_grad()
def constant_(tensor, val: float):
    return tensor.fill_(val)


@no_grad()
def ones_(tensor):
    return tensor.fill_(1.0)


@no_grad()
def zeros_(tensor):
    return tensor.fill_(0.0)


@no_grad()
def eye_(tensor):
    """The identity, as far as a matrix that may not be square can be."""
    if tensor.ndim != 2:
        raise ValueError(f"eye_ fills matrices; this tensor is {tensor.shape}")
    return tensor.copy_(_eye(*tensor.shape, dtype=tensor.dtype))


@no_grad()
def dirac_(tensor, groups: int = 1):
    """A convolution's weight that passes its input channels on."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError(f"dirac_ fills weights of convolutions, with 3 to 5 axes; this tensor is {tensor.shape}")
    if tensor.shape[0] % groups:
        raise ValueError(f"{tensor.shape[0]} output channels do not divide into {groups} groups")
    tensor.fill_(0.0)
    per_group = tensor.shape[0] // groups
    middle = tuple(n // 2 for n in tensor.shape[2:])
    for g in range(groups):
        for d in range(min(per_group, tensor.shape[1])):
            tensor[(g * per_group + d, d, *middle)] = 1.0
    return tensor


@no_grad()
def xavier_uniform_(tensor, gain: float = 1.0, generator=None):
    """Uniform numbers with the spread that keeps signals alike in both directions (Glorot and Bengio, 2010)."""
    fan_in, fan_out = _fans(tensor)
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    return tensor.uniform_(-bound, bound, generator=generator)


@no_grad()
def xavier_normal_(tensor, gain: float = 1.0, generator=None):
    fan_in, fan_out = _fans(tensor)
    return tensor.normal_(0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)), generator=generator)


@no_grad()
def kaiming_uniform_(tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator=None):
    """Uniform numbers with the spread that rectifiers keep (He et al., 2015)."""
    if 0 in tensor.shape:
        return tensor
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3.0 / _fan(tensor, mode))
    return tensor.uniform_(-bound, bound, generator=generator)


@no_grad()
def kaiming_normal_(tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator=None):
    if 0 in tensor.shape:
        return tensor
    return tensor.normal_(0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)), generator=generator)


@no_grad()
def orthogonal_(tensor, gain: float = 1, generator=None):
    """A matrix with orthonormal rows or columns, whichever are fewer (Saxe et al., 2013); later axes count as columns."""
    import numpy as np

    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_ fills tensors with two axes or more; this one is {tensor.shape}")
    if 0 in tensor.shape:
        return tensor
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    flat = _runtime.empty((max(rows, columns), min(rows, columns)), dtypes.float64).normal_(
        0.0, 1.0, generator=generator
    )
    q, r = np.linalg.qr(flat.numpy())
    q *= np.sign(np.diagonal(r))  # makes the decomposition unique and the distribution uniform
    if rows < columns:
        q = q.T
    made = _runtime.from_numpy(np.ascontiguousarray(q)).reshape(tensor.shape)
    return tensor.copy_(made.mul_(float(gain)).to(tensor.dtype))


@no_grad()
def sparse_(tensor, sparsity: float, std: float = 0.01, generator=None):
    """Normally distributed numbers of which a fraction in each column is zero."""
    if tensor.ndim != 2:
        raise ValueError(f"sparse_ fills matrices; this tensor is {tensor.shape}")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    tensor.normal_(0.0, float(std), generator=generator)
    for column in range(columns):
        tensor[_randperm(rows, generator=generator)[:zeros], column] = 0.0
    return tensor


uniform, normal, constant, eye, dirac = map(older_name, (uniform_, normal_, constant_, eye_, dirac_))
xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal, orthogonal, sparse = map(
    older_name, (xavier_uniform_, xavier_normal_, kaiming_uniform_, kaiming_normal_, orthogonal_, sparse_)
)
