"""vmap: a function of one example becomes a function of a batch."""

from __future__ import annotations

import functools

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.control.regions import Draws
from tandem.errors import ShapeError, UnsupportedError, ValueRangeError
from tandem.graph.ir import Type, Value, current_builder
from tandem.ops.region import region_graph
from tandem.transforms.batching import Batcher
from tandem.transforms.traced import call, take
from tandem.tree import Structure, flatten, unflatten

_RANDOMNESS = ("error", "different", "same")
_INT = Type(dtypes.int64, ())


def vmap(
    fn, in_axes=0, out_axes=0, randomness: str = "error", *, chunk_size: int | None = None, in_dims=None, out_dims=None
):
    """fn, written for one example, applied to a batch at once: each operator once on all examples, not once per example.

    in_axes: where the batch lies in the arguments: an axis, None for what all examples share, or a tuple or container of these.
    out_axes: where it goes in the results. randomness: whether examples draw "different" numbers, the "same", or it is an "error".
    chunk_size: so many examples at a time. in_dims and out_dims are other names for in_axes and out_axes. fn's code runs once per
    call, on a tensor without values: it cannot look at them (`if x > 0`), but td.where, td.cond, td.scan and td.grad work inside.

    >>> dot = lambda a, b: (a * b).sum()
    >>> td.vmap(dot)(td.tensor([[1.0, 2.0], [3.0, 4.0]]), td.tensor([[1.0, 1.0], [2.0, 0.0]]))
    tensor([3., 6.])
    """
    in_axes = in_axes if in_dims is None else in_dims
    out_axes = out_axes if out_dims is None else out_dims
    if randomness not in _RANDOMNESS:
        raise ValueRangeError("vmap", f"randomness is {randomness!r}; it must be one of {', '.join(_RANDOMNESS)}")

    @functools.wraps(fn, updated=())
    def wrapped(*args, **kwargs):
        leaves, structure = flatten((list(args), kwargs))
        prefix = in_axes if isinstance(in_axes, (tuple, list)) else [in_axes] * len(args)
        if len(prefix) != len(args):
            raise ValueRangeError(
                "vmap", f"in_axes has {len(prefix)} entries, but the function was called with {len(args)} arguments"
            )
        axes = _spread([*prefix, 0 if kwargs else None], Structure(list, range(len(args) + 1), [
            *structure.parts[0].parts, structure.parts[1],
        ]), "in_axes")  # fmt: skip
        tensors, places = [], []
        for leaf, axis in zip(leaves, axes, strict=True):
            if isinstance(leaf, Value):
                raise UnsupportedError(
                    "vmap", "tensors of a deferred graph cannot be batched", fix="call it eagerly or in td.compile"
                )
            if not isinstance(leaf, _runtime.Tensor):
                if axis is not None and not isinstance(leaf, (int, float, complex, str)):
                    raise ValueRangeError("vmap", f"an argument is a {type(leaf).__name__}; only tensors have an axis to map over",
                                          fix="give it in_axes=None")  # fmt: skip
                axis = None
            elif axis is not None and not -leaf.ndim <= axis < leaf.ndim:
                raise ShapeError("vmap", f"in_axes names axis {axis} of a tensor of shape {tuple(leaf.shape)}")
            places.append(axis)
            tensors.append(leaf)
        sizes = {leaf.shape[axis] for leaf, axis in zip(tensors, places, strict=True) if axis is not None}
        if not sizes:
            raise ValueRangeError(
                "vmap", "no argument has an axis to map over", fix="give in_axes for at least one tensor"
            )
        if len(sizes) > 1:
            raise ShapeError("vmap", f"the axes to map over have different sizes: {sorted(sizes)}")
        size = sizes.pop()
        moved = [
            F.moveaxis(leaf, axis, 0) if axis is not None and axis != 0 else leaf
            for leaf, axis in zip(tensors, places, strict=True)
        ]
        if chunk_size is not None and size > chunk_size:
            return _in_chunks(fn, moved, places, structure, out_axes, randomness, chunk_size, size)
        results, made = _batched(fn, moved, places, structure, randomness, size)
        return _finish(results, made, out_axes)

    return wrapped


def _spread(prefix, structure: Structure, name: str) -> list:
    """One axis for each leaf: an entry of `prefix` holds for all leaves below it."""
    if prefix is None or isinstance(prefix, int):
        return [prefix] * len(structure.paths())
    if structure.kind is None:
        raise ValueRangeError("vmap", f"{name} has a container where there is one tensor")
    entries = list(prefix.values()) if isinstance(prefix, dict) else list(prefix)
    if len(entries) != len(structure.parts):
        raise ValueRangeError("vmap", f"{name} has {len(entries)} entries for {len(structure.parts)} values")
    if isinstance(prefix, dict):
        entries = [prefix[k] for k in structure.keys]
    return [a for entry, part in zip(entries, structure.parts, strict=True) for a in _spread(entry, part, name)]


def _batched(
    fn, leaves: list, places: list, structure: Structure, randomness: str, size: int
) -> tuple[list, Structure]:
    """Results with the batch in front, and the containers they come in."""
    operands = [leaf for leaf in leaves if isinstance(leaf, _runtime.Tensor)]
    batched = tuple(
        axis is not None for leaf, axis in zip(leaves, places, strict=True) if isinstance(leaf, _runtime.Tensor)
    )
    if size == 0:
        raise ShapeError("vmap", "the batch is empty", fix="map over at least one example")

    def one(*values):
        given = iter(values)
        args, kwargs = unflatten(structure, [next(given) if isinstance(x, _runtime.Tensor) else x for x in leaves])
        return fn(*args, **kwargs)

    specs = [
        (t.dtype, list(t.shape[1:] if b else t.shape), t.requires_grad) for t, b in zip(operands, batched, strict=True)
    ]
    result, state = take("vmap", one, specs, operands)

    def build(body, tensors, consts, generator):
        count = next(t.shape[0] for t, b in zip(tensors, batched, strict=True) if b)
        for t, b in zip(tensors, batched, strict=True):
            if b and t.shape[0] != count:  # asking teaches that these sizes are one
                raise ShapeError("vmap", "the axes to map over have different sizes")
        types = [Type(t.dtype, t.shape[1:]) if b else t.type for t, b in zip(tensors, batched, strict=True)]
        types += [c.type for c in consts] + [_INT, _INT] * body.random
        used = 0

        def example(*values):
            nonlocal used
            draws = Draws(*values[-2:]) if body.random else None
            rest = values[len(tensors) : len(tensors) + len(consts)]
            made = body.trace(list(values[: len(tensors)]), list(rest), draws)
            used = draws.used if draws is not None else 0
            return made

        graph = region_graph(current_builder().graph.symbols, "example", types, example)
        inputs, start = [*tensors, *consts], None
        if body.random:
            start = generator.take(used * count if randomness == "different" else used)
            inputs += [generator.seed, start]
        flags = [*batched, *[False] * (len(inputs) - len(batched))]
        batcher = Batcher(count, randomness, start)
        return [batcher.full(*made) for made in batcher.graph(graph, inputs, flags)]

    if not result.leaves:
        return [], result.structure
    return call("vmap", result, operands, state, (batched, randomness), build), result.structure


def _finish(results: list, structure: Structure, out_axes):
    axes = _spread(out_axes, structure, "out_axes") if not isinstance(out_axes, int) else [out_axes] * len(results)
    if any(a is None for a in axes):
        results = [r[0] if a is None else r for r, a in zip(results, axes, strict=True)]
    return unflatten(
        structure, [F.moveaxis(r, 0, a) if a not in (None, 0) else r for r, a in zip(results, axes, strict=True)]
    )


def _in_chunks(fn, leaves, places, structure, out_axes, randomness: str, chunk: int, size: int):
    pieces, made = [], None
    for start in range(0, size, chunk):
        part = [
            leaf[start : start + chunk] if axis is not None else leaf for leaf, axis in zip(leaves, places, strict=True)
        ]
        results, made = _batched(fn, part, places, structure, randomness, min(chunk, size - start))
        pieces.append(results)
    return _finish([F.concat(list(column), 0) for column in zip(*pieces, strict=True)], made, out_axes)
