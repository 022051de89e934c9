"""Residual networks."""

import pytest

from tandem import models
from tests.models.small import bottleneck, check_training, count, resnet


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet18", 11_689_512),
        ("resnet34", 21_797_672),
        ("resnet50", 25_557_032),
        pytest.param("resnet101", 44_549_160, marks=pytest.mark.slow),
    ],
)
def test_parameter_counts(name, expected):
    assert count(getattr(models, name)()) == expected


@pytest.mark.parametrize("make", [resnet, bottleneck], ids=lambda f: f.__name__)
def test_compiled_is_eager_and_the_loss_falls(make):
    check_training(make)
