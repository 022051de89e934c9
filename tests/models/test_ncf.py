"""Neural collaborative filtering."""

from tests.models.small import check_training, ncf


def test_compiled_is_eager_and_the_loss_falls():
    check_training(ncf)
