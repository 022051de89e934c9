import numpy as np
import pytest

import tandem as td
from tests.check import check_gradients
from tests.fuzz.programs import loss_of, make_leaves, run


@pytest.mark.parametrize("seed", range(25))
def test_compiled_is_eager(seed):
    eager_loss, eager_grads = run(seed, make_leaves(seed))
    loss, grads = td.compile(run)(seed, make_leaves(seed))
    np.testing.assert_allclose(float(loss), float(eager_loss), rtol=1e-12)
    for a, b in zip(grads, eager_grads, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_gradients_are_finite_differences(seed):
    arrays = tuple(leaf.detach().numpy() for leaf in make_leaves(seed))

    check_gradients(lambda *tensors: loss_of(seed, tensors), arrays)
