"""Headers of files, and what is wrong with them."""

import json
import random

import pytest

import tandem as td

# -- damage


def test_every_truncation_is_noticed(tmp_path):
    td.save({"a": td.arange(10), "b": {"c": td.ones(3, dtype=td.bfloat16)}}, tmp_path / "a")
    data = (tmp_path / "a").read_bytes()
    for length in range(0, len(data), 7):
        (tmp_path / "b").write_bytes(data[:length])
        for mmap in (False, True):
            with pytest.raises(td.CheckpointError, match="damaged"):
                td.load(tmp_path / "b", mmap=mmap)
    (tmp_path / "b").write_bytes(data + b"x")
    with pytest.raises(td.CheckpointError, match="1 bytes follow"):
        td.load(tmp_path / "b")


def test_every_flipped_bit_is_noticed(tmp_path):
    td.save({"a": td.arange(4), "lr": 0.125}, tmp_path / "a")
    data = (tmp_path / "a").read_bytes()
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1 << (position % 8)
        (tmp_path / "b").write_bytes(changed)
        with pytest.raises(td.CheckpointError, match=r"damaged|version"):
            td.load(tmp_path / "b")
    (tmp_path / "b").write_bytes(bytes(changed))
    with pytest.raises(td.CheckpointError, match=r"the checksum of a is \w{8} where \w{8} was saved"):
        td.load(tmp_path / "b")


def test_random_bytes_are_no_checkpoint(tmp_path):
    generator = random.Random(0)
    for _ in range(300):
        length = generator.choice([8, 9, 50, 200])
        header = generator.randrange(0, 60).to_bytes(8, "little")
        (tmp_path / "a").write_bytes(header + generator.randbytes(length))
        with pytest.raises(td.CheckpointError):
            td.load(tmp_path / "a")


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]},
        {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]},
        {"dtype": "F32", "shape": "2", "data_offsets": [0, 8]},
        {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2]},
        [],
        None,
    ],
)
def test_headers_that_lie(tmp_path, entry):
    text = json.dumps({"x": entry}).encode()
    (tmp_path / "a").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    for mmap in (False, True):
        with pytest.raises(td.CheckpointError):
            td.load(tmp_path / "a", mmap=mmap)
