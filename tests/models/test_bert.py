"""BERT."""

import numpy as np
import pytest

import tandem as td
from tandem import models
from tests.models.small import check_training, count, language, whole


@pytest.mark.slow
def test_parameter_count():
    assert count(models.BERT()) == 109_482_240


def bert():
    model = models.BERT(11, 8, 2, 2, positions=8, dropout=0.0)
    mask = td.tensor([[1] * 6, [1] * 4 + [0] * 2])
    head = td.nn.Linear(8, 11)
    return language(model, whole(11, 2, 6), lambda t: head(model(t, mask)[0]))


def test_compiled_is_eager_and_the_loss_falls():
    check_training(bert)


def test_bert_looks_away_from_padding():
    td.manual_seed(0)
    model = models.BERT(11, 8, 1, 2, positions=8).eval()
    mask = td.tensor([[1, 1, 1, 0]])
    a, _ = model(td.tensor([[1, 2, 3, 4]]), mask)
    b, _ = model(td.tensor([[1, 2, 3, 9]]), mask)
    np.testing.assert_allclose(a[:, :3].detach().numpy(), b[:, :3].detach().numpy(), rtol=1e-6)
