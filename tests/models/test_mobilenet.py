"""MobileNets."""

import pytest

from tandem import models
from tests.models.small import check_training, count, mobilenet_v1, mobilenet_v2


@pytest.mark.parametrize(("name", "expected"), [("MobileNetV1", 4_231_976), ("MobileNetV2", 3_504_872)])
def test_parameter_counts(name, expected):
    assert count(getattr(models, name)()) == expected


@pytest.mark.parametrize(
    "make", [mobilenet_v1, pytest.param(mobilenet_v2, marks=pytest.mark.slow)], ids=lambda f: f.__name__
)
def test_compiled_is_eager_and_the_loss_falls(make):
    check_training(make)
