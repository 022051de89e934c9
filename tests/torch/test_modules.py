"""torch.fx, torch.library, torch.hub and torch.export on what is behind them here; names that are left out say what to use."""

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


def test_custom_operators_have_gradients_of_their_own():
    @torch.library.custom_op("tests::cube", mutates_args=())
    def cube(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return td.tensor(x.numpy() ** 3 * scale)

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.scale = inputs[1]

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x * x * ctx.scale, None

    @cube.register_fake
    def _(x, scale=1.0):
        return torch.empty_like(x)

    x = td.tensor([2.0], requires_grad=True)
    with pytest.raises(td.UnsupportedError, match="no gradient"):
        cube(x, 1.0).sum().backward()
    cube.register_autograd(backward, setup_context=setup_context)
    torch.ops.tests.cube(x, scale=2.0).sum().backward()
    assert x.grad.item() == 24.0
    with pytest.raises(AttributeError, match="custom_op defines"):
        _ = torch.ops.tests.nothing


def test_hub_loads_folders(tmp_path):
    (tmp_path / "hubconf.py").write_text("def twice(x):\n    'Doubles.'\n    return 2 * x\n")
    assert torch.hub.list(str(tmp_path), source="local") == ["twice"]
    assert torch.hub.load(str(tmp_path), "twice", 4, source="local") == 8
    assert torch.hub.help(str(tmp_path), "twice", source="local") == "Doubles."
    with pytest.raises(td.ValueRangeError, match="has no entry 'thrice'"):
        torch.hub.load(str(tmp_path), "thrice", source="local")
    with pytest.raises(td.UnsupportedError, match="nothing is fetched"):
        torch.hub.load("some/where", "model")


def test_export_goes_through_a_file(tmp_path):
    layer = nn.Linear(3, 2)
    program = torch.export.export(layer, (td.ones(4, 3),), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.export.save(program, tmp_path / "layer.pt2")
    loaded = torch.export.load(tmp_path / "layer.pt2").module()
    x = td.randn(6, 3)
    assert torch.allclose(layer(x), loaded(x))
    with pytest.raises(td.DTypeError, match="cannot be called"):
        program(x)


@pytest.mark.parametrize(("name", "advice"), [("_inductor", "td.compile"), ("package", "td.export.save")])
def test_what_is_left_out_says_what_to_use(name, advice):
    with pytest.raises(AttributeError, match=advice):
        getattr(torch, name)
