"""Schedules that also move the momentum: cycles, and one cycle."""

from __future__ import annotations

import math

from tandem.optim.lr_scheduler import LRScheduler, _set


def _per_group(optimizer, value) -> list:
    count = len(optimizer.param_groups)
    values = list(value) if isinstance(value, (list, tuple)) else [value] * count
    if len(values) != count:
        raise ValueError(f"{len(values)} values were given for {count} groups")
    return values


def _momentum(group: dict) -> float:
    return group["betas"][0] if "betas" in group else group["momentum"]


def _set_momentum(group: dict, value: float):
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


def _check_momentum(optimizer):
    if not any(name in optimizer.defaults for name in ("momentum", "betas")):
        raise ValueError(f"{type(optimizer).__name__} has no momentum to cycle; pass cycle_momentum=False")


class CyclicLR(LRScheduler):
    """The rate goes up and down between base_lr and max_lr, the momentum the other way (Smith, 2017).

    mode: "triangular", "triangular2" (half as high every cycle), "exp_range" (times gamma ** iteration)
    """

    def __init__(self, optimizer, base_lr, max_lr, step_size_up: int = 2000, step_size_down: int | None = None,
                 mode: str = "triangular", gamma: float = 1.0, scale_fn=None, scale_mode: str = "cycle",
                 cycle_momentum: bool = True, base_momentum=0.8, max_momentum=0.9, last_epoch: int = -1):  # fmt: skip
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError(f"mode is {mode!r}; it must be 'triangular', 'triangular2' or 'exp_range'")
        self.max_lrs = _per_group(optimizer, max_lr)
        for group, lr in zip(optimizer.param_groups, _per_group(optimizer, base_lr), strict=True):
            if last_epoch == -1:
                _set(group, lr)
                group["initial_lr"] = lr
        up, down = float(step_size_up), float(step_size_up if step_size_down is None else step_size_down)
        self.total_size, self.step_ratio = up + down, up / (up + down)
        self.mode, self.gamma, self._scale_fn, self._scale_mode = mode, gamma, scale_fn, scale_mode
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            _check_momentum(optimizer)
            self.base_momentums, self.max_momentums = (
                _per_group(optimizer, base_momentum),
                _per_group(optimizer, max_momentum),
            )
            if last_epoch == -1:
                for group, value in zip(optimizer.param_groups, self.max_momentums, strict=True):
                    _set_momentum(group, value)
        super().__init__(optimizer, last_epoch)

    def _scale(self, cycle: float) -> float:
        if self._scale_fn is not None:
            return self._scale_fn(cycle if self._scale_mode == "cycle" else self.last_epoch)
        if self.mode == "triangular2":
            return 1 / 2.0 ** (cycle - 1)
        return self.gamma**self.last_epoch if self.mode == "exp_range" else 1.0

    def get_lr(self):
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        height *= self._scale(cycle)
        if self.cycle_momentum:
            for group, low, high in zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                _set_momentum(group, high - (high - low) * height)
        return [base + (top - base) * height for base, top in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self):
        return {k: v for k, v in super().state_dict().items() if k != "_scale_fn"}


class OneCycleLR(LRScheduler):
    """One cycle: up from max_lr / div_factor to max_lr, then down far below; the momentum the other way (Smith and Topin, 2018).

    Called after every batch. total_steps, or epochs and steps_per_epoch, say how long it is.
    """

    def __init__(self, optimizer, max_lr, total_steps: int | None = None, epochs: int | None = None,
                 steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos",
                 cycle_momentum: bool = True, base_momentum=0.85, max_momentum=0.95, div_factor: float = 25.0,
                 final_div_factor: float = 1e4, three_phase: bool = False, last_epoch: int = -1):  # fmt: skip
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ValueError("give total_steps, or epochs and steps_per_epoch")
        self.total_steps = total_steps if total_steps is not None else epochs * steps_per_epoch
        if self.total_steps <= 0 or not 0 <= pct_start <= 1:
            raise ValueError(f"total_steps {self.total_steps} must be positive, pct_start {pct_start} between 0 and 1")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy is {anneal_strategy!r}; it must be 'cos' or 'linear'")
        self._anneal_strategy, self.cycle_momentum = anneal_strategy, cycle_momentum
        rise = pct_start * self.total_steps - 1
        ends = [rise, 2 * pct_start * self.total_steps - 2] if three_phase else [rise]
        self._ends = [float(e) for e in ends] + [self.total_steps - 1]
        # What rate and momentum are at the start, and at the end of every phase.
        self._lr_marks = ["initial_lr", "max_lr", *(["initial_lr"] if three_phase else []), "min_lr"]
        high, low = "max_momentum", "base_momentum"
        self._momentum_marks = [high, low, high, *([high] if three_phase else [])]
        if last_epoch == -1:
            for group, top in zip(optimizer.param_groups, _per_group(optimizer, max_lr), strict=True):
                group["initial_lr"], group["max_lr"] = top / div_factor, top
                group["min_lr"] = group["initial_lr"] / final_div_factor
        if cycle_momentum:
            _check_momentum(optimizer)
            if last_epoch == -1:
                lows, highs = _per_group(optimizer, base_momentum), _per_group(optimizer, max_momentum)
                for group, a, b in zip(optimizer.param_groups, lows, highs, strict=True):
                    _set_momentum(group, b)
                    group["max_momentum"], group["base_momentum"] = b, a
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, share: float) -> float:
        if self._anneal_strategy == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2.0 * (1 + math.cos(math.pi * share))

    def get_lr(self):
        if self.last_epoch > self.total_steps:
            raise ValueError(f"step {self.last_epoch} of a cycle of {self.total_steps} steps")
        begin, phase = 0.0, 0
        while self.last_epoch > self._ends[phase] and phase < len(self._ends) - 1:
            begin, phase = self._ends[phase], phase + 1
        share = (self.last_epoch - begin) / (self._ends[phase] - begin)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[self._lr_marks[phase]], group[self._lr_marks[phase + 1]], share))
            if self.cycle_momentum:
                marks = self._momentum_marks
                _set_momentum(group, self._between(group[marks[phase]], group[marks[phase + 1]], share))
        return rates
