"""LeNet."""

from tandem import models
from tests.models.small import check_training, count, lenet


def test_parameter_count():
    assert count(models.LeNet()) == 61_706


def test_compiled_is_eager_and_the_loss_falls():
    check_training(lenet)
