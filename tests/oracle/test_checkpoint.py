"""Weights that PyTorch users wrote with safetensors load by name, and the other way round."""

import numpy as np
import pytest

import tandem as td

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")
pytestmark = pytest.mark.oracle


def make(nn):
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))


def test_a_model_of_pytorch_through_a_file(tmp_path):
    theirs = make(torch.nn).eval()
    theirs[1].running_mean.normal_()
    safetensors.save_file(theirs.state_dict(), tmp_path / "model.safetensors")
    for mmap in (False, True):
        ours = make(td.nn).eval()
        ours.load_state_dict(td.load(tmp_path / "model.safetensors", mmap=mmap))
        x = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
        with torch.no_grad():
            assert np.allclose(theirs(torch.from_numpy(x)).numpy(), ours(td.from_numpy(x)).detach().numpy(), atol=1e-5)


def test_a_model_of_ours_through_a_file(tmp_path):
    ours = make(td.nn)
    td.save(ours.state_dict(), tmp_path / "model.safetensors")
    theirs = make(torch.nn)
    theirs.load_state_dict(safetensors.load_file(tmp_path / "model.safetensors"))
    assert all(
        np.array_equal(a.detach().numpy(), b.detach().numpy())
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True)
    )


@pytest.mark.parametrize(
    "dtype",
    ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64"],
)
def test_every_dtype_both_ways(tmp_path, dtype):
    values = torch.tensor([0, 1, 1, 0]).to(getattr(torch, dtype))
    safetensors.save_file({"x": values}, tmp_path / "a")
    found = td.load(tmp_path / "a")["x"]
    assert dtype == found.dtype.name
    td.save({"x": found}, tmp_path / "b")
    assert torch.equal(values, safetensors.load_file(tmp_path / "b")["x"])
