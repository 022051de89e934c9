"""Vision transformers."""

import pytest

from tandem import models
from tests.models.small import check_training, count, vit


@pytest.mark.slow
def test_parameter_count():
    assert count(models.vit_b_16()) == 86_567_656


def test_compiled_is_eager_and_the_loss_falls():
    check_training(vit)
