"""LSTMs of trees."""

from tests.models.small import check_training, tree_lstm


def test_compiled_is_eager_and_the_loss_falls():
    check_training(tree_lstm)
