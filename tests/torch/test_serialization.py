"""Files of modules and of state."""

import io

import pytest

import tandem as td
import tandem.nn.functional as F
import tandem.torch as torch
from tandem import nn


class _Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.act = nn.Linear(2, 1), F.relu

    def forward(self, x):
        return self.act(self.layer(x))


def test_modules_are_saved_whole_and_read_when_trusted(tmp_path):
    net = _Net()
    path = tmp_path / "net.pt"
    torch.save(net, path)
    with pytest.raises(td.CheckpointError, match="weights_only=False"):
        torch.load(path)
    again = torch.load(path, weights_only=False)
    assert torch.equal(again(td.ones(2)), net(td.ones(2)))
    classes = [_Net, nn.Linear, nn.Module]
    with torch.serialization.safe_globals(classes):
        assert torch.serialization.get_safe_globals() == classes
        assert isinstance(torch.load(path), _Net)
    assert torch.serialization.get_safe_globals() == []


def test_state_is_saved_as_ever():
    file = io.BytesIO()
    torch.save({"weight": td.ones(2), "step": 3}, file)
    file.seek(0)
    assert torch.load(file)["step"] == 3
