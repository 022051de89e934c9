"""torch.fx: graphs of what ran."""

import pytest

import tandem as td
import tandem.torch as torch
from tandem import nn


def test_fx_shows_the_graph_of_what_ran():
    traced = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    with pytest.raises(td.UnsupportedError, match="call the module once"):
        _ = traced.graph
    assert traced(td.ones(4, 2)).shape == (4, 3)
    assert "linear" in traced.code or "matmul" in traced.code
    assert len(list(traced.parameters())) == 2
