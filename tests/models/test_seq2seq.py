"""Translation with attention."""

import tandem as td
from tandem import models
from tests.models.small import check_training, gnmt, whole


def test_compiled_is_eager_and_the_loss_falls():
    check_training(gnmt)


def test_gnmt_translates_until_the_end():
    td.manual_seed(0)
    model = models.GNMT(11, 8, 3).eval()
    assert 1 <= model.translate(whole(11, 6, 3), start=0, end=1, longest=7).shape[0] <= 7
