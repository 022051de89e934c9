"""LSTMs of trees."""

import tandem as td
from tandem import models
from tandem.nn import functional as F
from tests.models.small import check_training


def tree_lstm():
    model = models.TreeLSTM(7, 6, 6, 3)
    tree = models.Tree(
        children=[models.Tree(1), models.Tree(children=[models.Tree(2), models.Tree(3), models.Tree(1)])]
    )
    return model, lambda: F.cross_entropy(model(tree), td.tensor([2]))


def test_compiled_is_eager_and_the_loss_falls():
    check_training(tree_lstm)
