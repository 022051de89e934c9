"""Lazy layers: their sizes come from the first input or from a state, and they are ordinary layers afterwards."""

import copy

import pytest

import tandem as td
from tandem import nn

CASES = [
    (nn.LazyLinear, (3,), (2, 4, 5), nn.Linear, "in_features", 5),
    (nn.LazyConv1d, (4, 3), (2, 6, 8), nn.Conv1d, "in_channels", 6),
    (nn.LazyConv2d, (4, 3), (6, 5, 5), nn.Conv2d, "in_channels", 6),
    (nn.LazyConv3d, (2, 2), (1, 3, 4, 4, 4), nn.Conv3d, "in_channels", 3),
    (nn.LazyConvTranspose1d, (4, 3), (2, 6, 8), nn.ConvTranspose1d, "in_channels", 6),
    (nn.LazyConvTranspose2d, (4, 3), (2, 6, 5, 5), nn.ConvTranspose2d, "in_channels", 6),
    (nn.LazyConvTranspose3d, (2, 2), (3, 2, 2, 2), nn.ConvTranspose3d, "in_channels", 3),
    (nn.LazyBatchNorm1d, (), (4, 3), nn.BatchNorm1d, "num_features", 3),
    (nn.LazyBatchNorm2d, (), (4, 3, 2, 2), nn.BatchNorm2d, "num_features", 3),
    (nn.LazyBatchNorm3d, (), (4, 3, 2, 2, 2), nn.BatchNorm3d, "num_features", 3),
    (nn.LazyInstanceNorm1d, (), (3, 4), nn.InstanceNorm1d, "num_features", 3),
    (nn.LazyInstanceNorm2d, (), (2, 3, 4, 4), nn.InstanceNorm2d, "num_features", 3),
    (nn.LazyInstanceNorm3d, (), (2, 3, 4, 4, 2), nn.InstanceNorm3d, "num_features", 3),
]


@pytest.mark.parametrize(
    ("lazy", "args", "shape", "plain", "name", "features"), CASES, ids=lambda c: getattr(c, "__name__", None)
)
def test_the_first_input_makes_the_layer(lazy, args, shape, plain, name, features):
    layer = lazy(*args)
    assert isinstance(layer, plain) and layer.has_uninitialized_params()
    assert type(layer.weight) is nn.UninitializedParameter
    saved = copy.deepcopy(layer)
    x = td.randn(*shape)
    found = layer(x)
    assert type(layer) is plain and getattr(layer, name) == features
    assert type(layer.weight) is nn.Parameter and layer.weight.requires_grad
    twin = plain(features, *args, **({"affine": True, "track_running_stats": True} if "Norm" in plain.__name__ else {}))
    assert {k: v.shape for k, v in twin.state_dict().items()} == {k: v.shape for k, v in layer.state_dict().items()}
    saved.load_state_dict(layer.state_dict())  # sizes from a state
    assert type(saved) is plain
    if "Norm" not in plain.__name__:
        assert saved(x).tolist() == found.tolist()


def test_a_model_with_lazy_layers_trains():
    model = nn.Sequential(
        nn.LazyConv2d(4, 3, groups=2), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)
    )
    model.register_forward_pre_hook(lambda module, args: seen.append(1))
    seen = []
    with pytest.raises(ValueError, match="call the model once"):
        td.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(td.ValueRangeError, match="waits for its first input"):
        model.state_dict()
    model.eval().double()
    x = td.randn(3, 2, 5, 5, dtype=td.float64)
    assert model(x).dtype is td.float64 and seen == [1]
    assert not model[1].training and model[4].weight.dtype is td.float64
    model.train().float()
    x = x.float()
    optimizer = td.optim.SGD(model.parameters(), 0.05)
    losses = []
    for _ in range(5):
        loss = (model(x) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_compiled_at_once():
    model = nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.LazyLinear(1))
    step = td.compile(lambda x: model(x).sum())
    x = td.ones(2, 3)
    first = step(x).item()
    assert type(model[0]) is nn.Linear and model[2].weight.shape == (1, 4)
    assert first == pytest.approx(step(x).item()) == pytest.approx(model(x).sum().item())


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="groups"):
        nn.LazyConv2d(3, 3, groups=2)
    with pytest.raises(td.ShapeError, match="no axis 1"):
        nn.LazyBatchNorm1d()(td.ones(3))
    frozen = nn.LazyLinear(2).requires_grad_(False)
    frozen(td.ones(1, 2))
    assert not frozen.weight.requires_grad
