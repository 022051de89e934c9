"""The LSTM language model."""

from tandem import models
from tests.models.small import check_training, language, whole


def lstm():
    model = models.LSTMLanguageModel(11, 12)
    return language(model, whole(11, 5, 3), lambda t: model(t)[0])


def test_compiled_is_eager_and_the_loss_falls():
    check_training(lstm)
