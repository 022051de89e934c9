"""torch.hub: folders with models."""

import pytest

import tandem as td
import tandem.torch as torch


def test_hub_loads_folders(tmp_path):
    (tmp_path / "hubconf.py").write_text("def twice(x):\n    'Doubles.'\n    return 2 * x\n")
    assert torch.hub.list(str(tmp_path), source="local") == ["twice"]
    assert torch.hub.load(str(tmp_path), "twice", 4, source="local") == 8
    assert torch.hub.help(str(tmp_path), "twice", source="local") == "Doubles."
    with pytest.raises(td.ValueRangeError, match="has no entry 'thrice'"):
        torch.hub.load(str(tmp_path), "thrice", source="local")
    with pytest.raises(td.UnsupportedError, match="nothing is fetched"):
        torch.hub.load("some/where", "model")
