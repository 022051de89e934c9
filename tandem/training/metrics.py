"""Metrics that are collected over batches: update(outputs, targets) for each, then compute()."""

from __future__ import annotations

import math

from tandem.nn import functional as F


class Metric:
    """What is measured over a whole data set."""

    def __init__(self):
        self.reset()

    def reset(self):
        raise NotImplementedError

    def update(self, outputs, targets):
        raise NotImplementedError

    def compute(self) -> float:
        raise NotImplementedError


class Mean(Metric):
    """The mean of numbers, weighted by how many examples each stands for: update(value, count)."""

    def reset(self):
        self.total, self.count = 0.0, 0

    def update(self, value, count: int = 1):
        self.total += float(value) * count
        self.count += count

    def compute(self) -> float:
        return self.total / self.count if self.count else math.nan


class Accuracy(Metric):
    """The share of examples whose class is among the `top` highest scores.

    outputs: scores (n, classes), targets: classes (n)

    >>> metric = td.training.Accuracy()
    >>> metric.update(td.tensor([[1.0, 2.0], [3.0, 0.0]]), td.tensor([1, 1]))
    >>> metric.compute()
    0.5
    """

    def __init__(self, top: int = 1):
        self.top = top
        super().__init__()

    def reset(self):
        self.right, self.count = 0, 0

    def update(self, outputs, targets):
        if self.top == 1:
            right = outputs.argmax(-1) == targets
        else:
            right = (outputs.topk(self.top, -1)[1] == targets.unsqueeze(-1)).any(-1)
        self.right += int(right.sum())
        self.count += right.numel()

    def compute(self) -> float:
        return self.right / self.count if self.count else math.nan


class F1(Metric):
    """The harmonic mean of precision and recall: of class 1 of two, or the mean over all classes ("macro").

    outputs: scores (n, classes) or (n), positive for class 1; targets: classes (n)
    """

    def __init__(self, average: str = "binary"):
        if average not in ("binary", "macro"):
            raise ValueError(f"average is {average!r}; it must be 'binary' or 'macro'")
        self.average = average
        super().__init__()

    def reset(self):
        self.hits: dict[int, int] = {}
        self.said: dict[int, int] = {}
        self.were: dict[int, int] = {}

    def update(self, outputs, targets):
        guesses = (outputs > 0).to(targets.dtype) if outputs.ndim == targets.ndim else outputs.argmax(-1)
        for guess, target in zip(guesses.reshape(-1).tolist(), targets.reshape(-1).tolist(), strict=True):
            guess, target = int(guess), int(target)
            self.said[guess] = self.said.get(guess, 0) + 1
            self.were[target] = self.were.get(target, 0) + 1
            if guess == target:
                self.hits[guess] = self.hits.get(guess, 0) + 1

    def _of(self, c: int) -> float:
        both = self.said.get(c, 0) + self.were.get(c, 0)
        return 2 * self.hits.get(c, 0) / both if both else 0.0

    def compute(self) -> float:
        if self.average == "binary":
            return self._of(1)
        classes = sorted({*self.said, *self.were})
        return sum(self._of(c) for c in classes) / len(classes) if classes else math.nan


class AUC(Metric):
    """The area under the ROC curve: how likely a positive example scores higher than a negative one; ties count half.

    outputs: scores (n), targets: 0 or 1 (n)
    """

    def reset(self):
        self.scores: list[float] = []
        self.targets: list[int] = []

    def update(self, outputs, targets):
        self.scores += outputs.reshape(-1).tolist()
        self.targets += [int(t) for t in targets.reshape(-1).tolist()]

    def compute(self) -> float:
        order = sorted(range(len(self.scores)), key=self.scores.__getitem__)
        positives = sum(self.targets)
        negatives = len(self.targets) - positives
        if not positives or not negatives:
            return math.nan
        ranks, at = 0.0, 0
        while at < len(order):  # equal scores share the mean of their ranks
            end = at
            while end + 1 < len(order) and self.scores[order[end + 1]] == self.scores[order[at]]:
                end += 1
            ranks += (at + end) / 2 * sum(self.targets[i] for i in order[at : end + 1])
            at = end + 1
        return (ranks - positives * (positives - 1) / 2) / (positives * negatives)


class Perplexity(Metric):
    """exp of the mean cross entropy. outputs: scores (..., classes), targets: classes (...)"""

    def reset(self):
        self.mean = Mean()

    def update(self, outputs, targets):
        flat = outputs.reshape(-1, outputs.shape[-1])
        self.mean.update(F.cross_entropy(flat, targets.reshape(-1)).item(), targets.numel())

    def compute(self) -> float:
        return math.exp(self.mean.compute())
