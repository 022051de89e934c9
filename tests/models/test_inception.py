"""Inception."""

import tandem as td
from tandem import models
from tests.models.small import count, images


def test_parameter_count():
    assert count(models.InceptionV3()) == 27_161_264


def test_inception_has_auxiliary_scores_while_training():
    model = models.InceptionV3(5).eval()
    with td.no_grad():
        assert model(images(1, 75)).shape == (1, 5)
