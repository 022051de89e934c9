"""Operators that build the default graph wherever they are called, and give what they build the name they are told."""

import functools
import inspect

from tandem import dtypes
from tandem.session.build import as_tensor, graph_of, identity
from tandem.session.graph import Graph, StepNode, SymbolicTensor


def in_graph(function=None, keywords: dict | None = None):
    """function as a builder of graphs: of the graph its arguments belong to, or else the default one.

    It takes `name` besides its own arguments, by keyword or after the others: that of the tensor or operation it gives.
    keywords: classic keyword -> ours.
    """
    # Operators of tandem take more arguments than the classic ones, but none of them a text, except first (einsum).
    own = 1 if hasattr(function, "parameters") else len(inspect.signature(function).parameters.keys() - {"name"})

    @functools.wraps(function, assigned=("__name__", "__doc__"), updated=())
    def build(*args, name=None, **kwargs):
        if name is None and len(args) > own and isinstance(args[-1], str):
            *args, name = args
        kwargs = {(keywords or {}).get(k, k): v for k, v in kwargs.items()}
        flat = [a for x in (*args, *kwargs.values()) for a in (x if isinstance(x, (list, tuple)) else (x,))]
        with graph_of(*flat) as graph:
            return named(graph, name, lambda: function(*args, **kwargs))

    return build


def named(graph: Graph, name: str | None, build):
    """What build() gives, under this name; what it builds on the way has names that begin with it.

    A node that was there before, or one of several results of different nodes, keeps its own name.
    """
    if name is None:
        return build()
    before = len(graph.nodes)
    with graph.name_scope(name) as full:
        result = build()
        single = isinstance(result, SymbolicTensor)
        made = {r.node if isinstance(r, SymbolicTensor) else r for r in _results(result)}
        node = made.pop() if len(made) == 1 else None
        if node is not None and node in graph.nodes[before:] and not (single and result.index):
            graph.rename(node, full)
        elif single:
            result = identity(result)
            graph.rename(result.node, full)
    return result


def _results(result) -> list:
    several = result if isinstance(result, (list, tuple)) else [result]
    return [r for r in several if isinstance(r, (SymbolicTensor, StepNode))]


def int32_if_whole(value):
    """int32 if these are Python's integers and it holds them, otherwise None."""
    if type(value) is int:
        return dtypes.int32 if -(2**31) <= value < 2**31 else None
    if isinstance(value, (list, tuple)) and value and all(int32_if_whole(v) for v in value):
        return dtypes.int32
    return None


def operand(x):
    """x with a dtype and a shape: arrays and lists become tensors of the graph; numbers stay, and adapt to what they meet."""
    keep = isinstance(x, (bool, int, float, complex, SymbolicTensor))
    return x if keep else as_tensor(graph_of(), x, int32_if_whole(x))


def operands(values) -> list[SymbolicTensor]:
    """values as tensors; lists and numbers have the dtype of the first tensor among them."""
    dtype = next((v.dtype for v in values if isinstance(v, SymbolicTensor)), None)
    return [as_tensor(graph_of(), v, dtype or int32_if_whole(v)) for v in values]
