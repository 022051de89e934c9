"""MobileNets."""

import pytest

from tandem import models
from tests.models.small import check_training, classifier, count, images


@pytest.mark.parametrize(("name", "expected"), [("MobileNetV1", 4_231_976), ("MobileNetV2", 3_504_872)])
def test_parameter_counts(name, expected):
    assert count(getattr(models, name)()) == expected


def mobilenet_v1():
    # 2 x 2 positions at the end: statistics over fewer make every rounding error a hundred times larger from step to step.
    return classifier(models.MobileNetV1(4, width=0.25), images(8, 64))


def mobilenet_v2():
    return classifier(models.MobileNetV2(4, width=0.25, dropout=0.0), images(8, 64))


@pytest.mark.parametrize(
    "make", [mobilenet_v1, pytest.param(mobilenet_v2, marks=pytest.mark.slow)], ids=lambda f: f.__name__
)
def test_compiled_is_eager_and_the_loss_falls(make):
    check_training(make)
