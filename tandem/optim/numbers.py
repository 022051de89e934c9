"""Numbers inside update rules: settings in float64, rounded once at the end; 16-bit parameters and gradients in float32."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes


def wide(*values):
    """Tensors as the rule computes with them: 16-bit ones in float32."""
    made = tuple(F.astype(v, dtypes.float32) if v.dtype.itemsize < 4 else v for v in values)
    return made if len(made) > 1 else made[0]


def exact(*numbers):
    """Settings in float64, where 1 - 0.999 loses nothing."""
    made = tuple(F.astype(n, dtypes.float64) for n in numbers)
    return made if len(made) > 1 else made[0]


def like(param, *numbers):
    """Results of such computations in the dtype that the rule computes in."""
    dtype = param.dtype if param.dtype.itemsize >= 4 else dtypes.float32
    made = tuple(F.astype(n, dtype) for n in numbers)
    return made if len(made) > 1 else made[0]


def decayed(param, grad, weight_decay, maximize: bool):
    """The gradient to descend: with its sign turned for a maximum, and with the decay of the parameter added."""
    return (-grad if maximize else grad) + like(param, weight_decay) * param


def norm(x):
    return F.sqrt(F.sum(x * x))
