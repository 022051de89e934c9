"""A module called with other parameters."""

import numpy as np

import tandem as td
from tandem import nn


def test_functional_call_ties_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 2, bias=False)
            self.b = nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    model, twice = Tied(), 2 * td.eye(2)
    call = nn.utils.stateless.functional_call
    assert call(model, {"a.weight": twice}, (td.ones(1, 2),)).tolist() == [[4, 4]]
    other = call(model, {"a.weight": twice}, (td.ones(1, 2),), tie_weights=False)
    np.testing.assert_allclose(other.detach().numpy(), model.b(td.ones(1, 2) * 2).detach().numpy(), rtol=1e-6)


def test_a_module_has_other_parameters_while_inside():
    layer = nn.Linear(2, 2)
    own = layer.weight
    with nn.utils.stateless._reparametrize_module(layer, {"weight": td.eye(2), "bias": td.zeros(2)}):
        assert layer(td.tensor([3.0, 4.0])).tolist() == [3.0, 4.0]
    assert layer.weight is own
