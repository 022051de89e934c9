"""Optimisers, schedules of the learning rate, averages of weights."""

from tandem.aliases import path as _path
from tandem.optim import lr_scheduler, swa_utils
from tandem.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam, SparseAdam
from tandem.optim.adaptive import Adadelta, Adagrad, RMSprop
from tandem.optim.classic import ASGD, Rprop
from tandem.optim.layerwise import LAMB, LARS, Adafactor, Lion
from tandem.optim.lbfgs import LBFGS
from tandem.optim.muon import Muon
from tandem.optim.optimizer import Optimizer, rule
from tandem.optim.sgd import SGD

__all__ = [
    "ASGD", "LAMB", "LARS", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Lion", "Muon", "NAdam",
    "Optimizer", "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler", "rule", "swa_utils",
]  # fmt: skip

# PyTorch has a file for every optimiser: `from tandem.optim.adamw import AdamW`.
for _made in (Adadelta, Adafactor, Adagrad, Adamax, AdamW, ASGD, NAdam, RAdam, RMSprop, Rprop):
    _path(f"tandem.optim.{_made.__name__.lower()}", {_made.__name__: _made})
_path("tandem.optim.sparse_adam", {"SparseAdam": SparseAdam})
