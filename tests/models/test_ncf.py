"""Neural collaborative filtering."""

import tandem as td
from tandem import models
from tandem.nn import functional as F
from tests.models.small import check_training, whole


def ncf():
    model = models.NCF(20, 30, 4, (16, 8, 4))
    user, item, target = whole(20, 16), whole(30, 16), whole(2, 16).to(td.float32)
    return model, lambda: F.binary_cross_entropy_with_logits(model(user, item), target)


def test_compiled_is_eager_and_the_loss_falls():
    check_training(ncf)
