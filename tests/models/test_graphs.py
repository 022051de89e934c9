"""Networks of graphs."""

import numpy as np
import pytest

from tandem import models
from tests.models.small import EDGES, check_training, gat, gcn, images


@pytest.mark.parametrize("make", [gcn, gat], ids=lambda f: f.__name__)
def test_compiled_is_eager_and_the_loss_falls(make):
    check_training(make)


def test_gcn_is_the_formula():
    conv = models.GCNConv(5, 3)
    x = images(4, 1, 5).reshape(4, 5)
    adjacency = np.eye(4)
    for a, b in EDGES.numpy().T:
        adjacency[b, a] += 1
    root = adjacency.sum(1) ** -0.5
    expected = (root[:, None] * adjacency * root[None]) @ (x.numpy() @ conv.lin.weight.detach().numpy().T)
    np.testing.assert_allclose(conv(x, EDGES).detach().numpy(), expected, rtol=1e-4, atol=1e-6)
