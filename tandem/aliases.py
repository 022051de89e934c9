"""Modules under the paths that PyTorch has them at, where ours are divided otherwise."""

from __future__ import annotations

import importlib
import sys
import types


def path(full: str, names: dict) -> types.ModuleType:
    """A module of that full name with these contents, which `import` and `from ... import` find, set in its package."""
    module = types.ModuleType(full, "PyTorch's path to what lives elsewhere.")
    module.__dict__.update(names)
    sys.modules[full] = module
    package, _, last = full.rpartition(".")
    if package in sys.modules:
        above = sys.modules[package]
        above.__dict__.setdefault(last, module)
        above.__dict__.setdefault("__path__", [])  # imports go through packages only
    return module


def also_at(full: str, module: types.ModuleType):
    """Has `import` find a module under another full name, too."""
    package, _, last = full.rpartition(".")
    sys.modules[full] = module
    setattr(sys.modules[package], last, module)


# Names that users find in modules below those that define them. Nothing in those modules uses them: who asks gets them.
_ABOVE = {
    "tandem.autograd": {"gradcheck": "tandem.testing", "gradgradcheck": "tandem.testing", "profiler": "tandem"},
    "tandem.cuda": {"amp": "tandem"},
    "tandem.nn.graph": {"GraphLoader": "tandem.data.graphs", "NeighborLoader": "tandem.data.graphs"},
    "tandem.nn.parameter": {
        "UninitializedBuffer": "tandem.nn.lazy", "UninitializedParameter": "tandem.nn.lazy", "is_lazy": "tandem.nn.lazy",
    },
    "tandem.nn.parallel": {"DistributedDataParallel": "tandem.distributed.ddp"},
}  # fmt: skip


def from_above(module: str):
    """A `__getattr__` for this module, which finds the names that others above it define."""

    def find(name: str):
        home = _ABOVE[module].get(name)
        if home is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(importlib.import_module(home), name)

    return find


def contents(*modules) -> dict:
    """What modules have, private names too: those that programs import are often private ones."""
    return {k: v for m in modules for k, v in vars(m).items() if not k.startswith("__")}
