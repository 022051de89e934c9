"""Parameters as one vector and back."""

import pytest

import tandem as td
from tandem import nn


def test_vectors():
    m = nn.Linear(2, 3)
    v = nn.utils.parameters_to_vector(m.parameters())
    assert v.shape == (9,) and v.requires_grad
    nn.utils.vector_to_parameters(td.arange(9.0), m.parameters())
    assert m.weight.tolist() == [[0, 1], [2, 3], [4, 5]] and m.bias.tolist() == [6, 7, 8]
    with pytest.raises(ValueError, match=r"\(9,\)"):
        nn.utils.vector_to_parameters(td.ones(8), m.parameters())
