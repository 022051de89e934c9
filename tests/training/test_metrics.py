"""Metrics."""

import math

import pytest

import tandem as td
from tandem.training import (
    AUC,
    F1,
    Accuracy,
    Perplexity,
)

# -- metrics


def test_metrics():
    scores = td.tensor([[0.1, 0.9, 0.0], [0.8, 0.1, 0.1], [0.2, 0.3, 0.5], [0.4, 0.3, 0.3]])
    classes = td.tensor([1, 0, 1, 2])

    def measure(metric, *batches):
        for batch in batches:
            metric.update(*batch)
        return metric.compute()

    assert measure(Accuracy(), (scores[:2], classes[:2]), (scores[2:], classes[2:])) == 0.5
    assert measure(Accuracy(top=2), (scores, classes)) == 0.75
    assert measure(F1("macro"), (scores, classes)) == pytest.approx((2 / 3 + 2 / 3 + 0) / 3)
    assert measure(F1(), (td.tensor([1.0, -1, 2, 3]), td.tensor([1, 1, 0, 1]))) == pytest.approx(2 / 3)
    assert measure(AUC(), (td.tensor([0.1, 0.4, 0.35, 0.8]), td.tensor([0, 0, 1, 1]))) == pytest.approx(0.75)
    assert measure(AUC(), (td.tensor([0.5, 0.5]), td.tensor([0, 1]))) == pytest.approx(0.5)
    assert math.isnan(measure(AUC(), (td.tensor([0.5]), td.tensor([1]))))
    assert measure(Perplexity(), (td.zeros(5, 7), td.arange(5))) == pytest.approx(7, rel=1e-5)
