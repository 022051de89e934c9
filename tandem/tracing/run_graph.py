"""Running a graph as such: one that was saved and loaded, or that a compiled function gave."""

from __future__ import annotations

from tandem import _runtime
from tandem.constructors import asarray
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Graph, checking, replay
from tandem.graph.symbolic import hint, substitute
from tandem.ops.define import ParameterSpec, Role, make_function

_PARAMETERS = [ParameterSpec("inputs", "tensors", True, None, False)]


def run_graph(graph: Graph, given: tuple) -> list:
    """Results of the graph; what it writes into inputs is written.

    After the inputs come the integers that sizes are computed with besides; those that are left out are what they were when the
    graph was made.
    """
    count = len(graph.inputs)
    integers = sorted(o[1] for o in graph.symbols.origins if o[0] == "int")
    if not count <= len(given) <= count + len(integers):
        more = f", and up to {len(integers)} integers" if integers else ""
        kinds = ", ".join(repr(v.type) for v in graph.inputs[:6]) + (", ..." if count > 6 else "")
        raise ValueRangeError("run", f"the graph has {count} inputs ({kinds}){more}; {len(given)} were given")
    tensors = []
    for position, (x, value) in enumerate(zip(given[:count], graph.inputs, strict=True)):
        t = x if isinstance(x, _runtime.Tensor) else asarray(x, dtype=value.dtype)
        if t.dtype is not value.dtype:
            raise DTypeError("run", f"input {position} is {value.type!r}; a tensor of {t.dtype} was given")
        known = all(not isinstance(n, int) or n == m for n, m in zip(value.shape, t.shape, strict=False))
        if t.ndim != value.ndim or not known:
            raise ShapeError("run", f"input {position} is {value.type!r}; a tensor of shape {tuple(t.shape)} was given")
        tensors.append(t.detach())
    written = [value for _, value in graph.mutations]
    extra = dict(zip(integers, given[count:], strict=False))

    def body(inputs):
        sizes = {}
        for index, origin in enumerate(graph.symbols.origins):
            if origin[0] == "size":
                sizes[index] = inputs[origin[1]].shape[origin[2]]
            elif origin[0] != "local":
                sizes[index] = extra.get(origin[1], graph.symbols.hints[index])
        for relation, expression in graph.symbols.guards:
            difference = substitute(expression, sizes)
            if relation == "==" and difference != 0:
                raise ShapeError("run", f"the graph relies on sizes that are not given ({hint(difference)} too many)")
        whole = Graph(graph.symbols, graph.name)
        whole.inputs, whole.nodes, whole.outputs = graph.inputs, graph.nodes, [*graph.outputs, *written]
        with checking(graph.from_file):
            return tuple(replay(whole, list(inputs), sizes))

    function = make_function(graph.name or "graph", body, _PARAMETERS, role=Role(whole=True))
    with _runtime.PauseCapture():
        results = list(function(tensors))
    for (position, _), new in zip(graph.mutations, results[len(graph.outputs) :], strict=True):
        given[position].detach().copy_(new)
    return results[: len(graph.outputs)]
