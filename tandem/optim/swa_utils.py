"""Averages of weights over training: stochastic weight averaging, exponential moving averages."""

from __future__ import annotations

import copy
import math

from tandem import dtypes
from tandem.autograd.modes import no_grad
from tandem.nn.module import Module
from tandem.nn.parameter import empty_tensor
from tandem.ops import lerp_
from tandem.optim.lr_scheduler import LRScheduler


def get_ema_avg_fn(decay: float = 0.999):
    """A mean that forgets: decay * average + (1 - decay) * new."""

    def average(averaged, new, num_averaged):
        return averaged + (1 - decay) * (new - averaged)

    average.weight = lambda num_averaged: 1 - decay
    return average


def get_swa_avg_fn():
    """The plain mean of all weights so far."""

    def average(averaged, new, num_averaged):
        return averaged + (new - averaged) / (num_averaged + 1)

    average.weight = lambda num_averaged: 1.0 / (num_averaged + 1)
    return average


get_ema_multi_avg_fn, get_swa_multi_avg_fn = get_ema_avg_fn, get_swa_avg_fn


class AveragedModel(Module):
    """A copy of a model that holds averages of its parameters: call update_parameters(model) after steps, then use it as a model.

    avg_fn(averaged, new, number so far) gives a new average; the plain mean by default. use_buffers: average buffers too; otherwise
    they are copied.

    >>> model = td.nn.Linear(2, 1)
    >>> average = td.optim.swa_utils.AveragedModel(model, avg_fn=td.optim.swa_utils.get_ema_avg_fn(0.99))
    >>> average.update_parameters(model)
    >>> average(td.ones(3, 2)).shape
    (3, 1)
    """

    def __init__(self, model: Module, device=None, avg_fn=None, multi_avg_fn=None, use_buffers: bool = False):
        super().__init__()
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.register_buffer("n_averaged", empty_tensor(device=device, dtype=dtypes.int64).zero_())
        self.avg_fn = avg_fn or multi_avg_fn or get_swa_avg_fn()
        self.use_buffers = use_buffers

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Module):
        count = int(self.n_averaged)
        pairs = list(zip(self.module.parameters(), model.parameters(), strict=True))
        buffers = list(zip(self.module.buffers(), model.buffers(), strict=True))
        weight = self.avg_fn.weight(count) if hasattr(self.avg_fn, "weight") else None
        for averaged, new in pairs + (buffers if self.use_buffers else []):
            if count == 0 or not averaged.dtype.is_inexact:
                averaged.copy_(new)
            elif weight is not None:
                lerp_(averaged, new, weight)
            else:
                averaged.copy_(self.avg_fn(averaged, new, self.n_averaged))
        if not self.use_buffers:
            for averaged, new in buffers:
                averaged.copy_(new)
        self.n_averaged.add_(1)


@no_grad()
def update_bn(loader, model: Module, device=None):
    """Recomputes the running statistics of batch normalisation, by one pass over data."""
    layers = [
        m for m in model.modules() if getattr(m, "running_mean", None) is not None and hasattr(m, "reset_running_stats")
    ]
    if not layers:
        return
    before, momenta = model.training, [m.momentum for m in layers]
    for m in layers:
        m.reset_running_stats()
        m.momentum = None
    model.train()
    for batch in loader:
        model(batch[0] if isinstance(batch, (list, tuple)) else batch)
    for m, momentum in zip(layers, momenta, strict=True):
        m.momentum = momentum
    model.train(before)


class SWALR(LRScheduler):
    """Goes to swa_lr in anneal_epochs epochs, by a cosine or linearly, and stays there."""

    def __init__(
        self, optimizer, swa_lr: float, anneal_epochs: int = 10, anneal_strategy: str = "cos", last_epoch: int = -1
    ):
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy is {anneal_strategy!r}; it must be 'cos' or 'linear'")
        rates = list(swa_lr) if isinstance(swa_lr, (list, tuple)) else [swa_lr] * len(optimizer.param_groups)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["swa_lr"] = rate
        self.anneal_epochs, self.anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _share(self, t: float) -> float:
        return (1 - math.cos(math.pi * t)) / 2 if self.anneal_strategy == "cos" else t

    def get_lr(self):
        step = max(0, self._step_count - 1)
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = (self._share(max(0, min(1, n / max(1, self.anneal_epochs)))) for n in (step - 1, step))
        rates = []
        for group in self.optimizer.param_groups:
            lr, goal = float(group["lr"]), group["swa_lr"]
            start = goal if before == 1 else (lr - before * goal) / (1 - before)
            rates.append(goal * now + start * (1 - now))
        return rates
