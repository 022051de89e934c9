"""PyTorch's namespace: `import tandem.torch as torch`. Names, parameters, results and exception classes are PyTorch's.

Tensors, layers, optimisers and operators are those of `tandem`; functions that PyTorch and the Array API standard define
differently are PyTorch's here and the standard's there. `tandem.torch.install()` has packages that `import torch` get this one.

>>> import tandem.torch as torch
>>> torch.std(torch.tensor([1.0, 2.0, 3.0]))
tensor(1.)
>>> torch.equal(torch.ones(2), torch.ones(2))
True
"""

import importlib as _importlib
import sys as _sys
import types as _types

import tandem as _tandem
from tandem.names import missing as _missing
from tandem.torch import _config
from tandem.torch import foreach as _foreach
from tandem.torch import functions as _functions
from tandem.torch import inner as _inner
from tandem.torch import legacy as _legacy
from tandem.torch import modes as _modes
from tandem.torch import paths as _paths
from tandem.torch import serialization as _serialization
from tandem.torch import storage as _storage
from tandem.torch.futures import Future
from tandem.torch.paths import install
from tandem.torch.subclasses import attach as _attach_subclasses

__version__ = _paths.VERSION

# The names of tandem, less what is private to it; modules come by __getattr__, as they are imported when first used.
globals().update({
    _name: _value for _name, _value in vars(_tandem).items()
    if not _name.startswith("_") and not isinstance(_value, _types.ModuleType)
})  # fmt: skip
globals().update(_foreach.FUNCTIONS)
for _module in (_inner, _legacy, _functions, _modes):
    globals().update({_name: getattr(_module, _name) for _name in _module.__all__})
del _module
_paths.watch()
_attach_subclasses()
save, load = _serialization.save, _serialization.load
__config__ = _config
UntypedStorage, TypedStorage = _storage.UntypedStorage, _storage.TypedStorage


_OWN = (
    "_C",
    "_dynamo",
    "accelerator",
    "ao",
    "export",
    "fft",
    "futures",
    "fx",
    "hub",
    "library",
    "linalg",
    "onnx",
    "overrides",
    "serialization",
    "sparse",
    "special",
    "types",
)  # modules that differ from tandem's


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(f"module 'tandem.torch' has no attribute {name!r}")
    if name in _OWN:
        return _importlib.import_module(f"tandem.torch.{name}")
    if name == "ops":
        return _importlib.import_module("tandem.torch.library").ops
    try:
        found = getattr(_tandem, name)
    except AttributeError:
        try:
            found = _importlib.import_module(f"tandem.torch.{name}")
        except ModuleNotFoundError:
            from tandem.torch.left_out import ADVICE

            advice = f" in Tandem: {ADVICE[name]}" if name in ADVICE else ""
            raise _missing(__name__, name, advice or "; docs/pytorch.md lists what is left out, and why") from None
    globals()[name] = found
    return found


def __dir__():
    return sorted({*globals(), *_tandem._LAZY, *_tandem._LATE["tandem.nn.functional"]})
