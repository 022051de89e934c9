"""Operator functions of groups of calls: what td.autobatch runs in place of many calls of one plan.

See Note [Autobatch] in src/autobatch/batch.h.
"""

from __future__ import annotations

import numpy

from tandem.errors import InternalError
from tandem.graph.ir import Type, current_builder
from tandem.ops.define import ParameterSpec, Role, make_function
from tandem.ops.region import region_graph
from tandem.tensors.constructors import asarray, zeros
from tandem.tracing.program import _replay
from tandem.transforms.batching import Batcher

PARAMETERS = [
    ParameterSpec("tensors", "tensors", True, None, False),
    ParameterSpec("numbers", "tensors", True, None, False),
    ParameterSpec("ints", "ints", True, None, False),
]
NUMBERS = ("float", "complex", "integer", "bool", "seed")


def group_function(plan, flags: tuple[bool, ...]):
    """The operator function of a plan's calls as one. plan: a CapturedPlan. flags: which of its tensors differ between calls, and
    so have an axis more, in front.

    Its arguments are the tensors, then the places in the random stream where these differ; numbers; integers, and last how many
    calls there are.
    """
    kinds = [(position, spec.kind) for _, spec, position in plan.arguments]
    tensors = [p for p, kind in kinds if kind == "tensor"]
    offsets = [p for p, kind in kinds if kind == "offset"]
    numbers = [p for p, kind in kinds if kind in NUMBERS]
    ints = [p for p, kind in kinds if kind == "int"]

    def fn(tensors_given, numbers_given, ints_given):
        count = ints_given[-1]
        apart = len(tensors_given) > len(tensors)  # calls have places of their own in the random stream
        batched = [*flags, *[True] * (len(tensors_given) - len(tensors))]
        for t, flag in zip(tensors_given, batched, strict=True):
            if flag and t.shape[0] != count:  # asking teaches that these sizes are one
                raise InternalError(plan.name, "rows of a group are missing")
        positions = [*tensors, *(offsets if apart else []), *sorted(numbers + ([] if apart else offsets))]
        values = [*tensors_given, *numbers_given]
        batched += [False] * len(numbers_given)
        types = [
            Type(v.dtype, v.shape[1:], v.type.weak) if flag else v.type for v, flag in zip(values, batched, strict=True)
        ]

        def example(*inputs):
            known = dict(zip(positions, inputs, strict=True))
            known.update(zip(ints, (1 if i == 1 else i for i in ints_given[:-1]), strict=True))
            return _replay(current_builder(), plan, known, [])

        graph = region_graph(current_builder().graph.symbols, plan.name, types, example)
        batcher = Batcher(count, "same")
        return tuple(batcher.full(*made) for made in batcher.graph(graph, values, batched))

    digest = None if plan.digest is None else repr(("group", plan.digest, flags))
    role = Role(whole=plan.whole, lazy_sums=True)
    return make_function(plan.name, fn, PARAMETERS, role=role, digest=digest)


# -- gradients of rows, where they are differentiated again


def _index(shape, strides, offset: int):
    """Where the elements of a strided view lie in the memory it looks at."""
    index = numpy.full((), offset, numpy.int64)
    for n, step in zip(shape, strides, strict=True):
        index = index[..., None] + numpy.arange(n, dtype=numpy.int64) * step
    return index.reshape(-1)


def place_row(total, grad, block_shape, shape, strides, offset: int):
    """total plus grad where a view of these strides lies in a block of zeros."""
    count = int(numpy.prod(block_shape, dtype=numpy.int64))
    flat = zeros(count, dtype=grad.dtype, device=grad.device)
    index = asarray(_index(shape, strides, offset)).to(grad.device)
    made = flat.index_add(0, index, grad.reshape(-1)).reshape(block_shape)
    return made if total is None else total + made


def take_view(flat, shape, strides, offset: int):
    return flat[asarray(_index(shape, strides, offset)).to(flat.device)].reshape(shape)
