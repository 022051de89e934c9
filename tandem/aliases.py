"""Modules under the paths that PyTorch has them at, where ours are divided otherwise."""

from __future__ import annotations

import sys
import types


def path(full: str, names: dict) -> types.ModuleType:
    """A module of that full name with these contents, which `import` and `from ... import` find, set in its package."""
    module = types.ModuleType(full, "PyTorch's path to what lives elsewhere.")
    module.__dict__.update(names)
    sys.modules[full] = module
    package, _, last = full.rpartition(".")
    if package in sys.modules:
        sys.modules[package].__dict__.setdefault(last, module)
    return module


def contents(*modules) -> dict:
    """What modules have, private names too: those that programs import are often private ones."""
    return {k: v for m in modules for k, v in vars(m).items() if not k.startswith("__")}
