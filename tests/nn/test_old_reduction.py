"""Arguments of losses from before reduction."""

import tandem as td
import tandem.nn.functional as F


def test_losses_take_pytorchs_old_arguments():
    x, y = td.tensor([1.0, 2.0]), td.tensor([1.0, 4.0])
    assert F.mse_loss(x, y, False).tolist() == 4.0
    assert F.mse_loss(x, y, size_average=True).tolist() == 2.0
    assert F.l1_loss(x, y, None, False).tolist() == [0.0, 2.0]
