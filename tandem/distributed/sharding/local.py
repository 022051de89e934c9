"""Operator functions of this rank: graphs on parts, run as any operator is."""

from __future__ import annotations

import hashlib

from tandem.errors import ShapeError
from tandem.graph.ir import Graph, replay
from tandem.graph.serialize import to_json
from tandem.ops.define import ParameterSpec, Role, make_function

_PARAMETERS = [
    ParameterSpec("tensors", "tensors", True, None, False),
    ParameterSpec("numbers", "tensors", True, None, False),
]
_MANY_NODES = 40  # for which passes pay
_MOST = 4096  # functions that are kept
_functions: dict = {}


def local_function(name: str, graph: Graph, is_number: list[bool]):
    """An operator function that runs a graph of this rank. Ranks that are threads share it where their graphs are the same."""
    key = name, hashlib.sha256(to_json(graph).encode()).hexdigest(), tuple(is_number)
    function = _functions.get(key)
    if function is not None:
        return function

    def fn(tensors, numbers):
        tensors, numbers = iter(tensors), iter(numbers)
        inputs = [next(numbers) if number else next(tensors) for number in is_number]
        for value, expected in zip(inputs, graph.inputs, strict=True):
            for actual, dim in zip(value.shape, expected.shape, strict=True):
                if actual != dim:  # asking teaches that the size is this one
                    raise ShapeError(name, f"a part has shape {value.shape}; expected is {expected.shape}")
        return tuple(replay(graph, inputs, {}))

    if len(_functions) >= _MOST:
        _functions.pop(next(iter(_functions), None), None)  # another rank's thread may be here too
    function = _functions[key] = make_function(
        name, fn, _PARAMETERS, role=Role(whole=len(graph.nodes) > _MANY_NODES), digest=f"sharded {key[1]}"
    )
    return function
