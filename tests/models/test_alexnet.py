"""AlexNet."""

import pytest

from tandem import models
from tests.models.small import alexnet, check_training, count


@pytest.mark.slow
def test_parameter_count():
    assert count(models.AlexNet()) == 61_100_840


def test_compiled_is_eager_and_the_loss_falls():
    check_training(alexnet)
