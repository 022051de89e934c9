"""How elements of several ranks become one."""

from __future__ import annotations

import enum

from tandem.errors import ValueRangeError
from tandem.ops.collective import REDUCTIONS


class ReduceOp(enum.Enum):
    """Reductions, under PyTorch's names."""

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"


def reduction_name(op) -> str:
    name = op.value if isinstance(op, ReduceOp) else {"mean": "avg", "prod": "product"}.get(op, op)
    if name not in REDUCTIONS:
        raise ValueRangeError("all_reduce", f"op={op!r} is no reduction; there are {', '.join(REDUCTIONS)}")
    return name
