"""What decisions of lowering weigh for a target, filled from properties of the processor or device; and what it costs to compute a
value again where it is read, against keeping it in memory."""

from __future__ import annotations

import os

from tandem.codegen.computes import operator_cost
from tandem.graph.ir import Value
from tandem.graph.symbolic import hint
from tandem.ops.arithmetic import Cast
from tandem.ops.create import RandomBits
from tandem.ops.define import Elementwise, Input, LibraryOp
from tandem.ops.index import Gather
from tandem.ops.movement import Embed


class CpuCosts:
    """Of a processor whose cores have a second-level cache of so many bytes."""

    cheap = 8  # cost units: what takes less is recomputed rather than kept, if it reads at most one tensor

    def __init__(self, cache_bytes: int = 1 << 20):
        # Results of products from which on an update of the parameter runs on their blocks. Its arithmetic takes as long as its
        # memory, so that there is little to gain where the cache holds the parameter and what belongs to it, and the product has
        # less of the cache. (With 1 MB of it a step of gpt-mini, whose weights have 1.8 and 2.4 MB, takes 1 % less for it; with
        # those of an LSTM, 1 MB, or of 0.3 MB in NCF it is as long or longer.)
        self.update_bytes = 3 * cache_bytes // 2


class CudaCosts:
    """Of a device with so many multiprocessors."""

    cheap = 32  # arithmetic is cheaper there than memory
    row_of_a_block = 1 << 14  # elements that one block reads in about the time of a launch

    def __init__(self, processors: int):
        self.chunk_blocks = 8 * processors  # rows are cut in chunks until there are so many: two rounds of four on each
        self.setup_blocks = 8 * processors  # that share the elements where every thread computes much for itself first
        self.filter_blocks = 4 * processors  # that sum gradients of filters
        self.across_blocks = processors  # chunks in which a kernel over rows sums across them, at most


def second_level_cache() -> int:
    """Bytes of the cache that a core has to itself after the first; 1 MB where the system does not say."""
    folder = "/sys/devices/system/cpu/cpu0/cache"
    try:
        for index in sorted(os.listdir(folder)):
            if _read(f"{folder}/{index}/level") == "2":
                size = _read(f"{folder}/{index}/size")
                return int(size[:-1]) << {"K": 10, "M": 20}[size[-1]]
    except (OSError, ValueError, KeyError, IndexError):
        pass
    return 1 << 20


def _read(path: str) -> str:
    with open(path) as f:
        return f.read().strip()


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
        if cost > kept.target.costs.cheap:
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
        if cost > kept.target.costs.cheap:
            return False
        stack.extend(v.node.inputs)
    # of two 16-bit tensors, gradients of activations read one anyway
    return traffic <= budget or (itemsize == 2 and large <= 2 and traffic <= 2 * size * itemsize)
