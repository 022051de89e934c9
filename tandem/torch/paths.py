"""Importing: `tandem.torch.nn` is `tandem.nn`, and after install() `torch.nn` is, too.

Note [Modules under several names]
A module has one object, whatever it was imported as: classes must be the same for isinstance and pickle. So the finder here
makes no copies; it imports the module by its own name and files the object under the other one as well.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys

from tandem import promotion
from tandem.torch import overrides

# Whose names and results these are: the version that the tables and tests compare with.
PYTORCH = "2.13.0"
VERSION = f"{PYTORCH}+tandem"
_OURS = "tandem.torch"


def _target(name: str) -> str | None:
    """The module that is meant by a name below torch, or None: tandem.torch's own, or tandem's."""
    rest = name.removeprefix(_OURS + ".")
    first = rest.partition(".")[0]
    own = importlib.machinery.PathFinder.find_spec(f"{_OURS}.{first}", sys.modules[_OURS].__path__)
    if own is not None:
        return name
    try:
        return f"tandem.{rest}" if importlib.util.find_spec(f"tandem.{rest}") is not None else None
    except (ModuleNotFoundError, ValueError):  # a part of the path is no package, or no module with a spec
        return f"tandem.{rest}" if f"tandem.{rest}" in sys.modules else None


class _Same(importlib.abc.Loader):
    """Loads a module by giving the one that is there under another name."""

    def __init__(self, target: str):
        self.target = target

    def create_module(self, spec):
        module = importlib.import_module(self.target)
        self.spec = getattr(module, "__spec__", None)
        return module

    def exec_module(self, module):
        module.__spec__ = self.spec  # the import system has just put that of the other name there


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self):
        self.installed = False

    def find_spec(self, name, path=None, target=None):
        if self.installed and name.startswith("torch."):
            found = _target(_OURS + name[len("torch") :])
        elif name.startswith(_OURS + "."):
            found = _target(name)
            found = None if found == name else found  # a file of ours, which Python finds by itself
        else:
            return None
        if found is None:
            return None
        return importlib.machinery.ModuleSpec(name, _Same(found), is_package=hasattr(_loaded(found), "__path__"))

    def find_distributions(self, context=None):
        """What packages ask for the installed version of torch are told."""
        name = getattr(context, "name", None)
        if self.installed and name in (None, "torch"):
            yield _Distribution()


def _loaded(name: str):
    return importlib.import_module(name)


class _Distribution(importlib.metadata.Distribution):
    def read_text(self, filename):
        return (
            f"Metadata-Version: 2.1\nName: torch\nVersion: {VERSION}\n"
            if filename in ("METADATA", "PKG-INFO")
            else None
        )

    def locate_file(self, path):
        raise FileNotFoundError(f"torch is {_OURS} here, which has no file {path}")


_finder = _Finder()


def watch() -> None:
    """Has imports below tandem.torch found, and programs that import it promote as PyTorch does."""
    promotion.watch()
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def install() -> None:
    """Puts tandem.torch in the place of torch: packages that are imported afterwards and ask for torch get it.

    Call it first, before anything imports PyTorch itself; the process has one or the other.

        import tandem.torch

        tandem.torch.install()
        import torchmetrics  # and whatever else was written for PyTorch
    """
    present = sys.modules.get("torch")
    ours = sys.modules[_OURS]
    if present is not None and present is not ours:
        raise ImportError(
            "tandem.torch.install: torch is imported already, so that some parts of the program have it",
            name="torch",
            path=getattr(present, "__file__", None),
        )
    watch()
    promotion.follow_pytorch()
    overrides.make_overridable(
        ours, *(importlib.import_module(f"{_OURS}.{part}") for part in ("linalg", "special", "fft"))
    )
    _finder.installed = True
    ours.__name__ = "torch"  # which programs ask modules for
    sys.modules["torch"] = ours
    importlib.invalidate_caches()
