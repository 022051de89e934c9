"""AlexNet."""

import pytest

from tandem import models
from tests.models.small import check_training, classifier, count, images


@pytest.mark.slow
def test_parameter_count():
    assert count(models.AlexNet()) == 61_100_840


def alexnet():
    return classifier(models.AlexNet(4, dropout=0.0), images(2, 64))


def test_compiled_is_eager_and_the_loss_falls():
    check_training(alexnet)
