"""Library routines that have C loops, by name."""

from __future__ import annotations

from tandem.errors import UnsupportedError
from tandem.export.c99 import arrange, products, windows
from tandem.export.c99.attention import attention
from tandem.export.c99.call import Call

ROUTINES = {
    "matmul": products.matmul,
    "conv_forward": products.conv_forward,
    "conv_backward_data": products.conv_backward_data,
    "pool_max": windows.pool_max,
    "pool_avg": windows.pool_avg,
    "pool_adaptive_max": windows.pool_adaptive_max,
    "pool_adaptive_avg": windows.pool_adaptive_avg,
    "attention": attention,
    "copy": arrange.copy,
    "concat": arrange.concat,
    "check_index": arrange.check_index,
    "check_divisor": arrange.check_divisor,
    "check_weights": arrange.check_weights,
    "scatter": arrange.scatter,
    "cumulative": arrange.cumulative,
    "linear_scan": arrange.linear_scan,
    "sort": arrange.sort,
    "sort_values": arrange.sort,
    "topk": arrange.topk,
}


def write(call: Call, node):
    """Has the routine of a call write its loops."""
    routine = ROUTINES.get(call.op.routine)
    if routine is None:
        where = f" at {node.source}" if node.source else ""
        raise UnsupportedError(
            "export.c", f"{call.op.name}{where} has no C routine",
            fix="compute it outside of the exported function; td.export.save takes every operator",
        )  # fmt: skip
    routine(call)
