"""td.data under PyTorch's path."""

import importlib
import pkgutil
import sys

import tandem.data
from tandem.aliases import path

# One module under two names: what is patched or added in one is seen in the other. So with the modules inside, which would be
# imported a second time else, and with those that PyTorch has there.
sys.modules[__name__] = tandem.data
for _found in pkgutil.iter_modules(tandem.data.__path__):
    sys.modules[f"{__name__}.{_found.name}"] = importlib.import_module(f"tandem.data.{_found.name}")
_names = {k: v for k, v in vars(tandem.data).items() if not k.startswith("__")}
for _name in ("dataloader", "distributed"):
    path(f"{__name__}.{_name}", _names)
path(f"{__name__}._utils", {})
path(f"{__name__}._utils.collate", _names)
