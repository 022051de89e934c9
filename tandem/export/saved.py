"""Saved models: a graph and its weights in one file, which loads without the classes that it was made of."""

from __future__ import annotations

import dataclasses

import tandem.checkpoint as checkpoint
from tandem import _runtime
from tandem.errors import CheckpointError, DTypeError, ShapeError, ValueRangeError
from tandem.export.conditions import HOLDS
from tandem.export.fold import fold_weights
from tandem.export.trace import Exported, check_names, trace
from tandem.graph.ir import Graph, checking, replay
from tandem.graph.substitution import substitute
from tandem.graph.symbolic import Sym, hint
from tandem.nn.module import Module
from tandem.nn.parameter import Parameter
from tandem.ops.define import ParameterSpec, Role, make_function
from tandem.passes.eliminate_dead import eliminate_dead
from tandem.passes.expand_composites import expand_composites
from tandem.passes.fold_constants import fold_constants
from tandem.passes.fuse_convolutions import fuse_convolutions
from tandem.passes.simplify import simplify
from tandem.passes.split_pools import split_pools
from tandem.tensors.constructors import asarray
from tandem.tree import Structure, unflatten

FORMAT = 1
_KIND = "tandem.export"
_CONTAINERS = {"tuple": tuple, "list": list, "dict": dict, "none": type(None)}
_PARAMETERS = [ParameterSpec("inputs", "tensors", True, None, False)]


def save(fn, args, path, *, dynamic=True, input_names=None, output_names=None, fold=False):
    """Writes a function or module to a file that `td.export.load` reads, in a process that does not have its class.

    fn: a module or a function of tensors. It runs once, on tensors without values, with gradients off: call `model.eval()` before.
    args: the tensors of one call, or one tensor.
    dynamic: True: the first axis of every argument may have any size. False: no axis may. {name: axes}: these.
    fold: whether what depends on weights alone is computed now; weights then lose their names.

    >>> td.export.save(td.nn.Linear(3, 2), td.ones(1, 3), "/tmp/linear.model")
    >>> td.export.load("/tmp/linear.model")(td.ones(5, 3)).shape
    (5, 2)
    """
    args = args if isinstance(args, (tuple, list)) else (args,)
    exported = trace(fn, tuple(args), dynamic, input_names)
    if fold:
        exported = fold_weights(exported)
    outputs = list(output_names or exported.outputs)
    check_names(outputs, len(exported.outputs), "results")
    write(exported, path, outputs)


def freeze(fn, args, *, dynamic=True) -> SavedModel:
    """A function or module for inference alone: what depends on weights is computed now, and weights are packed once.

    fn, args, dynamic: as of `save`. The model keeps its weights as they are now; training goes on with `fn`.

    >>> frozen = td.export.freeze(td.nn.Linear(3, 2), td.ones(1, 3))
    >>> frozen(td.ones(5, 3)).shape
    (5, 2)
    """
    args = args if isinstance(args, (tuple, list)) else (args,)
    return _frozen(trace(fn, tuple(args), dynamic))


def _frozen(exported: Exported) -> SavedModel:
    exported = fold_weights(exported)
    graph = exported.graph
    for step in (expand_composites, fold_constants, simplify, fuse_convolutions, split_pools, eliminate_dead):
        graph = step(graph)
    return SavedModel(dataclasses.replace(exported, graph=graph), frozen=True)


def write(exported: Exported, path, outputs: list[str] | None = None):
    """Writes what was traced."""
    outputs = exported.outputs if outputs is None else outputs
    checkpoint.save(
        {
            "kind": _KIND, "format": FORMAT, "graph": exported.graph.to_json(), "arguments": exported.arguments,
            "outputs": outputs, "structure": _write_structure(exported.structure), "weight_names": list(exported.weights),
            "weights": [t.detach() for t in exported.weights.values()],
        },
        path,
    )  # fmt: skip


def load(path, *, freeze: bool = False) -> SavedModel:
    """The model of a file that `save` wrote. A CheckpointError says what is wrong with another file.

    freeze: for inference alone, as `td.export.freeze` makes it.
    """
    return _frozen(read(path)) if freeze else SavedModel(read(path))


def read(path) -> Exported:
    """What was traced and written to a file."""
    found = checkpoint.load(path)
    if not isinstance(found, dict) or found.get("kind") != _KIND:
        raise CheckpointError(
            "export", f"{path} holds no saved model", fix="td.export.save(model, args, path) writes one"
        )
    if found.get("format") != FORMAT:
        raise CheckpointError("export", f"{path} has format {found.get('format')!r}; this version reads {FORMAT}")
    try:
        weights = dict(zip(found["weight_names"], found["weights"], strict=True))
        graph = Graph.from_json(found["graph"])
        structure = _read_structure(found["structure"])
        exported = Exported(graph, list(found["arguments"]), weights, list(found["outputs"]), structure)
        _check(exported)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError("export", f"{path} is damaged: {error}") from None
    return exported


def _check(exported: Exported):
    graph, given = exported.graph, [*exported.arguments, *exported.weights]
    if len(graph.inputs) != len(given) or len(graph.outputs) != len(exported.outputs) or graph.mutations:
        raise ValueError("names and graph do not fit")
    if not all(isinstance(name, str) for name in [*given, *exported.outputs]):
        raise ValueError("names are no text")
    if len(exported.structure.paths()) != len(graph.outputs):
        raise ValueError("the structure of the results does not fit")
    for value, t in zip(graph.inputs[len(exported.arguments) :], exported.weights.values(), strict=True):
        if not isinstance(t, _runtime.Tensor) or t.dtype is not value.dtype or tuple(t.shape) != tuple(value.shape):
            raise ValueError("a weight is not of the type that the graph has for it")


_FIX = "export it again with an example of such sizes, dynamic=False"


class SavedModel(Module):
    """A model from a file: called with tensors by position or by name, gives what the function gave.

    One program serves every call. Weights are parameters, under their names with underscores for dots.
    """

    def __init__(self, exported: Exported, frozen: bool = False):
        super().__init__()
        self.input_names, self.output_names = exported.arguments, exported.outputs
        self.graph, self._structure = exported.graph, exported.structure
        self._attributes = []
        for name, t in exported.weights.items():
            attribute = name.replace(".", "_")
            while hasattr(self, attribute):
                attribute += "_"
            if t.dtype.is_floating:
                setattr(self, attribute, Parameter(t, requires_grad=False))
            else:
                self.register_buffer(attribute, t)
            self._attributes.append(attribute)
        self._function = make_function(
            "saved_model", self._body, _PARAMETERS, role=Role(whole=True, own_results=0), digest=None
        )
        if frozen:
            self._function.constants = len(self.input_names)

    def _body(self, inputs):
        graph, sizes = self.graph, {}
        for index, origin in enumerate(graph.symbols.origins):
            if origin[0] == "size":
                sizes[index] = inputs[origin[1]].shape[origin[2]]
        for relation, expression in graph.symbols.guards:
            difference = substitute(expression, sizes)
            if relation == "==" and difference != 0:
                raise ShapeError("saved_model", f"sizes that must be equal differ by {abs(hint(difference))}")
            why = graph.symbols.reasons.get((relation, expression))
            if why is not None and not HOLDS[relation](difference):
                raise ShapeError("saved_model", f"it was exported for other sizes: {why}", fix=_FIX)
        with checking(True):  # sizes are others than those that it was traced with, and files say what they like
            return tuple(replay(graph, list(inputs), sizes))

    def forward(self, *args, **kwargs):
        given = dict(zip(self.input_names, args, strict=False))
        if len(args) > len(self.input_names) or set(kwargs) - set(self.input_names) or set(kwargs) & set(given):
            raise ValueRangeError("saved_model", f"it takes {self.input_names}, each once, by position or by name")
        given |= kwargs
        missing = [n for n in self.input_names if n not in given]
        if missing:
            raise ValueRangeError("saved_model", f"the inputs {missing} are not given")
        tensors = [self._argument(n, v, given[n]) for n, v in zip(self.input_names, self.graph.inputs, strict=False)]
        parameters, buffers = self._parameters, self._buffers  # getattr of hundreds of weights would take a while
        weights = [parameters[n] if n in parameters else buffers[n] for n in self._attributes]
        results = self._function([*tensors, *weights])
        return unflatten(self._structure, results)

    def _argument(self, name: str, value, x):
        t = x if isinstance(x, _runtime.Tensor) else asarray(x, dtype=value.dtype)
        if t.dtype is not value.dtype:
            raise DTypeError("saved_model", f"{name!r} is {value.type!r}; a tensor of {t.dtype} was given")
        fits = t.ndim == value.ndim and all(
            isinstance(n, Sym) or n == m for n, m in zip(value.shape, t.shape, strict=True)
        )
        if not fits:
            raise ShapeError("saved_model", f"{name!r} is {value.type!r}; a tensor of shape {tuple(t.shape)} was given")
        return t

    def extra_repr(self) -> str:
        kinds = ", ".join(f"{n}: {v.type!r}" for n, v in zip(self.input_names, self.graph.inputs, strict=False))
        return f"({kinds}) -> {', '.join(self.output_names)}; {len(self.graph.nodes)} nodes"


def _write_structure(structure: Structure):
    if structure.kind is None:
        return "*"
    names = {kind: name for name, kind in _CONTAINERS.items()}
    name = names.get(structure.kind, "tuple" if issubclass(structure.kind, tuple) else None)
    if name is None:
        raise ValueRangeError("export", f"results come in a {structure.kind.__name__}; give tuples, lists or dicts")
    keys = list(structure.keys) if name == "dict" else []
    return {"kind": name, "keys": keys, "parts": [_write_structure(p) for p in structure.parts]}


def _read_structure(found) -> Structure:
    if found == "*":
        return Structure(None)
    kind = _CONTAINERS[found["kind"]]
    parts = [_read_structure(p) for p in found["parts"]]
    keys = found["keys"] if kind is dict else range(len(parts))
    return Structure(kind, keys, parts)
