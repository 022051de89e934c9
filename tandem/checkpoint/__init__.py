"""Saving and restoring: safetensors files with a versioned structure beside the tensors; no pickle, so loading runs no code.

td.save({"model": model.state_dict(), "epoch": 3}, "run.safetensors")
state = td.load("run.safetensors")

manager = td.checkpoint.CheckpointManager("run", keep=3, model=model, optimizer=optimizer, loader=loader)
start = manager.restore() or 0
...
manager.save(step)
"""

import sys as _sys
import types as _types

from tandem import hooks
from tandem.checkpoint.background import PendingSave, save_async
from tandem.checkpoint.manager import Checkpoint, CheckpointManager
from tandem.checkpoint.reader import CheckpointFile, load, open
from tandem.checkpoint.writer import save
from tandem.errors import CheckpointError

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CheckpointFile",
    "CheckpointManager",
    "PendingSave",
    "load",
    "open",
    "save",
    "save_async",
]


class _Module(_types.ModuleType):
    def __call__(self, fn, *args, **kwargs):
        """td.checkpoint(fn, *args): the other meaning of the word, results that backward computes again (td.remat)."""
        return hooks.checkpoint(fn, *args, **kwargs)


_sys.modules[__name__].__class__ = _Module
