"""What is written in other operators on the CPU: reductions of tensors in memory that a routine of the library does better than a
generated loop, and gradients of attention that belong together.

Reductions only of what comes into the graph row-major: in the middle of a graph one is fused with what it reduces.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.lowering import Lowering
from tandem.codegen.packed_attention import attention_of_three, packed
from tandem.codegen.rules import RuleTable
from tandem.graph.ir import Type
from tandem.graph.symbolic import hint, product
from tandem.ops.arithmetic import Cast
from tandem.ops.define import Input, LibraryOp, register
from tandem.ops.join import Concat
from tandem.ops.reduce import Reduce

LONG = 512  # elements of a row up to which a generated loop finds the position of its best sooner
MANY = 1 << 15  # elements of all rows
_SEARCHED = (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64)


@register
class ArgExtremum(LibraryOp):
    """argmax or argmin over the last axes: blocks are compared in vectors, and only the best is searched for the position."""

    name = "arg_extremum"
    routine = "arg_extremum"
    axes: int
    smallest: bool

    def infer(self, x: Type) -> Type:
        keep = x.ndim - self.axes
        return Type(dtypes.int64, (*x.shape[:keep], *(1,) * self.axes))

    def attributes(self, x):
        return (self.axes, int(self.smallest)), ()


@register
class AnySet(LibraryOp):
    """any or all over all axes, which stops when the answer is known."""

    name = "any_set"
    routine = "any_set"
    all: bool

    def infer(self, x: Type) -> Type:
        return Type(dtypes.bool_, (1,) * x.ndim)

    def attributes(self, x):
        return (int(self.all),), ()


def _is_row_major(value, lowering: Lowering) -> bool:
    return isinstance(value.op, Input) and lowering.layouts[value.op.position] is None


def _attention(node, lowering: Lowering):
    return packed if attention_of_three(node) is not None else None


def _reduction(node, lowering: Lowering):
    op, x = node.op, node.inputs[0]
    if op.kind in ("argmax", "argmin"):
        trailing = tuple(sorted(op.axes)) == tuple(range(x.ndim - len(op.axes), x.ndim))
        if not trailing or not op.axes or x.dtype not in _SEARCHED or not _is_row_major(x, lowering):
            return None
        rows, length = product(x.shape[: x.ndim - len(op.axes)]), product(x.shape[a] for a in op.axes)
        return None if at_most(length, LONG, rows) else _search
    if op.kind in ("any", "all") and len(op.axes) == x.ndim:
        source = _uncast(x)
        return _look if _is_row_major(source, lowering) and not source.dtype.is_complex else None
    return None


def at_most(length, most: int, rows) -> bool:
    """Whether rows are so short that a loop of their own pays.

    Of a length that is not known it is asked only where there is much to gain, since asking makes a guard: others get another
    plan, which need not be among those that come with the package.
    """
    if type(length) is not int and (hint(length) > most or hint(length) * hint(rows) < MANY):
        return False
    return bool(length <= most)


def _uncast(x):
    return x.node.inputs[0] if isinstance(x.op, Cast) else x


def _search(op, x):
    return ArgExtremum(len(op.axes), op.kind == "argmin")(x)


def _look(op, x):
    return AnySet(op.kind == "all")(_uncast(x))


RULES = RuleTable(operators={Concat: _attention, Reduce: _reduction})
