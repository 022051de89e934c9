"""BERT."""

import numpy as np
import pytest

import tandem as td
from tandem import models
from tests.models.small import bert, check_training, count


@pytest.mark.slow
def test_parameter_count():
    assert count(models.BERT()) == 109_482_240


def test_compiled_is_eager_and_the_loss_falls():
    check_training(bert)


def test_bert_looks_away_from_padding():
    td.manual_seed(0)
    model = models.BERT(11, 8, 1, 2, positions=8).eval()
    mask = td.tensor([[1, 1, 1, 0]])
    a, _ = model(td.tensor([[1, 2, 3, 4]]), mask)
    b, _ = model(td.tensor([[1, 2, 3, 9]]), mask)
    np.testing.assert_allclose(a[:, :3].detach().numpy(), b[:, :3].detach().numpy(), rtol=1e-6)
