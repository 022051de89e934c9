"""What it costs to compute a value again where it is read, against keeping it in memory."""

from __future__ import annotations

from tandem.codegen.computes import operator_cost
from tandem.graph.ir import Value
from tandem.graph.symbolic import hint
from tandem.ops.arithmetic import Cast
from tandem.ops.create import RandomBits
from tandem.ops.define import Elementwise, Input, LibraryOp
from tandem.ops.index import Gather
from tandem.ops.movement import Embed

CHEAP = 8  # what costs less is recomputed rather than kept, if it reads at most one tensor
DEVICE_CHEAP = 32  # the same where arithmetic is cheaper than memory


def hinted_size(shape) -> int:
    size = 1
    for d in shape:
        size *= hint(d)
    return size


def few_reads(kept, value: Value, reads: int = 1) -> bool:
    """Whether value takes a few cheap instructions, and reads few tensors that are not in a cache: for processors."""
    cost, stack, seen = 0.0, [value], set()
    size = max(hinted_size(kept.shape_of(value)), 8)
    while stack:
        v = stack.pop()
        if v in seen:
            continue
        seen.add(v)
        op = v.op
        if v is not value and (v in kept.kept or isinstance(op, (Input, LibraryOp))):
            if 4 * hinted_size(kept.shape_of(v)) >= size:  # what is broadcast stays in cache
                reads -= 1
            if reads < 0:
                return False
            continue
        if isinstance(op, Elementwise):
            if 4 * hinted_size(kept.shape_of(v)) >= size:  # what is broadcast is computed outside the inner loop
                cost += operator_cost(v.node)
        elif isinstance(op, RandomBits):
            return False
        elif isinstance(op, (Gather, Embed)):
            cost += 4
        if cost > CHEAP:
            return False
        stack.extend(v.node.inputs)
    return True


def little_traffic(kept, value: Value) -> bool:
    """Whether computing value again costs less memory traffic than keeping it does, and arithmetic that hides behind it.

    Kept, it is written once and read by each of its users but the first; otherwise each of them reads what it is made from.
    """
    cost, stack, seen = 0.0, [value], set()
    size = max(hinted_size(kept.shape_of(value)), 8)
    itemsize = value.dtype.itemsize
    if isinstance(value.op, Cast):  # the narrower form would be kept
        itemsize = min(itemsize, value.node.inputs[0].dtype.itemsize)
    others = max(len(kept.users.get(value, ())) - 1, 1)
    budget = size * itemsize * (1 + 1 / others)
    traffic, large = 0, 0
    while stack:
        v = stack.pop()
        if v in seen:
            continue
        seen.add(v)
        op = v.op
        elements = hinted_size(kept.shape_of(v))
        if v is not value and (v in kept.kept or isinstance(op, (Input, LibraryOp))):
            if 4 * elements >= size:  # what is broadcast stays in cache
                traffic += elements * v.dtype.itemsize
                large += 1
            continue
        if isinstance(op, Elementwise):
            if 4 * elements >= size:
                cost += operator_cost(v.node, approximates=True)
        elif isinstance(op, RandomBits):
            return False
        elif isinstance(op, (Gather, Embed)):
            cost += 4
        if cost > DEVICE_CHEAP:
            return False
        stack.extend(v.node.inputs)
    # of two 16-bit tensors, gradients of activations read one anyway
    return traffic <= budget or (itemsize == 2 and large <= 2 and traffic <= 2 * size * itemsize)
