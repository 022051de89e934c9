"""The LSTM language model."""

from tests.models.small import check_training, lstm


def test_compiled_is_eager_and_the_loss_falls():
    check_training(lstm)
