"""Reading files."""

import json
import os

import numpy as np
import pytest

import tandem as td
from tests.checkpoint.states import same
from tests.processes import open_files


def test_mapped_tensors_can_be_changed_without_changing_the_file(tmp_path):
    td.save(td.zeros(4), tmp_path / "a")
    mapped = td.load(tmp_path / "a", mmap=True)
    mapped += 1
    assert [1.0] * 4 == mapped.tolist()
    assert [0.0] * 4 == td.load(tmp_path / "a").tolist()


def test_files_read_by_safetensors_and_files_written_by_it(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    tensors = {"layer.weight": td.randn(2, 3), "layer.bias": td.arange(3)}
    td.save(tensors, tmp_path / "a")
    for name, array in numpy.load_file(tmp_path / "a").items():
        assert np.array_equal(array, tensors[name].numpy())
    numpy.save_file({name: t.numpy() for name, t in tensors.items()}, tmp_path / "b")
    for mmap in (False, True):
        found = td.load(tmp_path / "b", mmap=mmap)
        assert set(tensors) == set(found)
        assert all(same(t, found[name]) for name, t in tensors.items())


def test_an_index_of_another_program(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    for i in (1, 2):
        numpy.save_file({f"w{i}": np.full(2, i, np.float32)}, tmp_path / f"model-0000{i}-of-00002.safetensors")
    weight_map = {f"w{i}": f"model-0000{i}-of-00002.safetensors" for i in (1, 2)}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    assert {"w1": [1.0, 1.0], "w2": [2.0, 2.0]} == {k: v.tolist() for k, v in td.load(tmp_path).items()}
    os.unlink(tmp_path / "model-00002-of-00002.safetensors")
    with pytest.raises(td.CheckpointError, match=r"00002-of-00002.safetensors .* is missing"):
        td.load(tmp_path)


def test_missing_files_are_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        td.load(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        td.save(td.zeros(1), tmp_path / "folder" / "a")
    with pytest.raises(td.CheckpointError, match="not exactly one checkpoint"):
        td.load(tmp_path)


def test_files_that_nobody_refers_to_are_closed(tmp_path):
    """As Python's own are: a program that opens one at every step does not run out of descriptors."""
    td.save({"a": td.ones(3), "b": td.zeros(1000)}, tmp_path / "whole.safetensors")
    td.save({"a": td.ones(3), "b": td.zeros(1000)}, tmp_path / "parts.safetensors", max_shard_size=2000)
    for name in ("whole.safetensors", "parts.safetensors"):
        mapped = td.checkpoint.open(tmp_path / name)["a"]
        assert mapped.tolist() == [1.0, 1.0, 1.0] and open_files(tmp_path)  # the tensor holds on to its pages
        del mapped
        assert td.checkpoint.open(tmp_path / name).shape("b") == (1000,)
        assert td.load(tmp_path / name, mmap=True)["a"].tolist() == [1.0, 1.0, 1.0]
        assert open_files(tmp_path) == []
