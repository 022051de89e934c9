"""VGG."""

import pytest

from tandem import models
from tests.models.small import check_training, count, vgg


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("vgg11", 132_863_336, marks=pytest.mark.slow),
        pytest.param("vgg16", 138_357_544, marks=pytest.mark.slow),
        pytest.param("vgg19", 143_667_240, marks=pytest.mark.slow),
    ],
)
def test_parameter_counts(name, expected):
    assert count(getattr(models, name)()) == expected


def test_compiled_is_eager_and_the_loss_falls():
    check_training(vgg)
