"""torch.export."""

import pytest

import tandem as td
import tandem.torch as torch
from tandem import nn


def test_export_goes_through_a_file(tmp_path):
    layer = nn.Linear(3, 2)
    program = torch.export.export(layer, (td.ones(4, 3),), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.export.save(program, tmp_path / "layer.pt2")
    loaded = torch.export.load(tmp_path / "layer.pt2").module()
    x = td.randn(6, 3)
    assert torch.allclose(layer(x), loaded(x))
    with pytest.raises(td.DTypeError, match="cannot be called"):
        program(x)
