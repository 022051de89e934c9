"""torch.export on td.export: a module with example arguments as a graph that stands by itself, and files of it."""

from __future__ import annotations

import os
import tempfile

from tandem.errors import DTypeError
from tandem.export import Exported, trace
from tandem.export.saved import SavedModel, read, write

__all__ = ["Dim", "ExportedProgram", "export", "load", "save"]


class Dim:
    """An axis that may have any size: dynamic_shapes={"x": {0: Dim("batch")}}."""

    AUTO = DYNAMIC = True

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None):
        self.__name__, self.min, self.max = name, min, max


class ExportedProgram:
    """A graph with its weights; `module()` runs it."""

    def __init__(self, exported: Exported):
        self._exported = exported

    @property
    def graph(self):
        return self._exported.graph

    @property
    def state_dict(self) -> dict:
        return self._exported.weights

    def module(self) -> SavedModel:
        return SavedModel(self._exported)

    def __call__(self, *args, **kwargs):
        raise DTypeError("export", "an exported program cannot be called", fix="use program.module()(...)")

    def __repr__(self):
        return f"<ExportedProgram: {self.graph!r}>"

    def __str__(self):
        return str(self.graph)


def export(mod, args: tuple, kwargs=None, *, dynamic_shapes=None, strict=False, preserve_module_call_signature=()):
    """mod as a graph. Axes that dynamic_shapes gives a Dim may have any size.

    >>> program = td.torch.export.export(td.nn.Linear(3, 2), (td.ones(4, 3),), dynamic_shapes=({0: td.torch.export.Dim("n")},))
    >>> program.module()(td.ones(7, 3)).shape
    (7, 2)
    """
    if kwargs:
        raise DTypeError("export", f"keywords {', '.join(kwargs)} were given", fix="give all tensors in args")
    count = len(args)
    names = ["x"] if count == 1 else [f"x{i}" for i in range(count)]
    dynamic = {}
    if dynamic_shapes is not None:
        given = dynamic_shapes.values() if isinstance(dynamic_shapes, dict) else dynamic_shapes
        for name, shape in zip(names, given, strict=False):
            axes = shape.items() if isinstance(shape, dict) else enumerate(shape or ())
            dynamic[name] = tuple(axis for axis, dim in axes if dim is not None)
    return ExportedProgram(trace(mod, tuple(args), dynamic or False, names))


def save(ep: ExportedProgram, f, *, extra_files=None, opset_version=None):
    """Writes a file that `load`, and td.export.load, read."""
    write(ep._exported, os.fspath(f))


def load(f, *, extra_files=None, expected_opset_version=None) -> ExportedProgram:
    """The program of a file."""
    if hasattr(f, "read"):
        with tempfile.NamedTemporaryFile() as file:
            file.write(f.read())
            file.flush()
            return load(file.name)
    return ExportedProgram(read(os.fspath(f)))
