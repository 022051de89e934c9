"""td.save and td.load: what goes in comes out, damaged files say so, and an interrupted save leaves the old file."""

import io
import json
import math
import os
import random
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import tandem as td
from tandem import _runtime, dtypes


def same(a, b) -> bool:
    if isinstance(a, td.Tensor):
        return (
            isinstance(b, td.Tensor)
            and a.dtype is b.dtype
            and a.shape == b.shape
            and _runtime.to_bytes(a) == _runtime.to_bytes(b)
        )
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b)))


def nested():
    return {
        "model": {"w": td.randn(3, 4), "b": td.zeros(3), "t": td.randn(4, 5).T, "none": td.zeros(0, 3), "scalar": td.tensor(2.5)},
        "groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": [0, 1]}],
        "state": {0: {"step": td.tensor(3)}, 1: {}},
        "text": "naïve", "nothing": None, "yes": True, "large": 2**80, "special": [math.inf, -math.inf, math.nan, -0.0],
        "bytes": b"\x00\xff", "complex": 1 + 2j, "set": {1, 2}, "dtype": td.bfloat16, "array": np.ones((2, 3)), "$odd": 1,
    }  # fmt: skip


def test_nested_state_comes_back_as_it_was(tmp_path):
    state = nested()
    td.save(state, tmp_path / "a.safetensors")
    for mmap in (False, True):
        assert same(state, td.load(tmp_path / "a.safetensors", mmap=mmap))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_dtype(tmp_path, dtype):
    raw = bytes(range(1, 1 + 3 * dtype.itemsize)) if dtype is not td.bool else b"\1\0\1"
    tensor = _runtime.from_bytes(raw, dtype, (3,))
    td.save({"x": tensor, "byte": td.ones(1, dtype=td.uint8)}, tmp_path / "a")
    for mmap in (False, True):
        found = td.load(tmp_path / "a", mmap=mmap)["x"]
        assert (dtype, (3,), raw) == (found.dtype, found.shape, _runtime.to_bytes(found))


def test_what_was_one_tensor_is_one_again(tmp_path):
    w = td.randn(2)
    td.save({"a": w, "b": w, "c": w.clone()}, tmp_path / "a")
    found = td.load(tmp_path / "a")
    assert found["a"] is found["b"] is not found["c"]
    assert 2 == len(td.checkpoint.open(tmp_path / "a"))


def test_names_that_would_collide_are_kept_apart(tmp_path):
    state = {"a.b": td.zeros(1), "a": {"b": td.ones(1)}, "__metadata__": td.ones(2)}
    td.save(state, tmp_path / "a")
    assert same(state, td.load(tmp_path / "a"))


def test_gradients_are_asked_for_again(tmp_path):
    td.save([td.ones(1, requires_grad=True), td.ones(1)], tmp_path / "a")
    assert [True, False] == [t.requires_grad for t in td.load(tmp_path / "a")]


def test_mapped_tensors_can_be_changed_without_changing_the_file(tmp_path):
    td.save(td.zeros(4), tmp_path / "a")
    mapped = td.load(tmp_path / "a", mmap=True)
    mapped += 1
    assert [1.0] * 4 == mapped.tolist()
    assert [0.0] * 4 == td.load(tmp_path / "a").tolist()


def test_what_is_no_state_is_refused_by_path(tmp_path):
    with pytest.raises(TypeError, match=r"the state\['a'\]\[1\] is a function"):
        td.save({"a": [1, lambda: 0]}, tmp_path / "a")
    with pytest.raises(TypeError, match=r"save x.state_dict"):
        td.save(td.nn.Linear(1, 1), tmp_path / "a")
    loop: list = []
    loop.append(loop)
    with pytest.raises(TypeError, match="contains itself"):
        td.save(loop, tmp_path / "a")
    assert [] == os.listdir(tmp_path)


def test_streams_and_urls(tmp_path):
    pytest.importorskip("fsspec")
    state = nested()
    stream = io.BytesIO()
    td.save(state, stream)
    assert same(state, td.load(stream))
    td.save(state, "memory://run/a.safetensors")
    assert same(state, td.load("memory://run/a.safetensors"))


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


# -- shards


def test_shards_have_an_index_as_hugging_face_writes_it(tmp_path):
    state = {f"layer{i}": td.full((100,), float(i)) for i in range(5)}
    td.save(state, tmp_path / "model.safetensors", max_shard_size=900)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert 2000 == index["metadata"]["total_size"]
    assert {
        "layer0": "model-00001-of-00003.safetensors",
        "layer4": "model-00003-of-00003.safetensors",
    }.items() <= index["weight_map"].items()
    for path in (tmp_path / "model.safetensors", tmp_path, tmp_path / "model.safetensors.index.json"):
        assert same(state, td.load(path))
    assert same(state, td.load(tmp_path, mmap=True))


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


def test_shards_are_replaced_and_old_ones_removed(tmp_path):
    path = tmp_path / "model.safetensors"
    for value in range(3):
        td.save({f"w{i}": td.full((10,), float(value)) for i in range(3)}, path, max_shard_size=40)
        assert float(value) == float(td.load(path)["w2"][0])
        assert 4 == len(os.listdir(tmp_path))
    td.save({"w0": td.full((10,), 9.0)}, path)
    assert ["model.safetensors"] == os.listdir(tmp_path)
    td.save({f"w{i}": td.full((10,), 5.0) for i in range(3)}, path, max_shard_size="40B")
    assert 5.0 == float(td.load(path)["w0"][0])


@pytest.mark.parametrize("size", ["5 apples", 0, "-1GB"])
def test_sizes_that_are_none(tmp_path, size):
    with pytest.raises(ValueError, match="max_shard_size"):
        td.save(td.zeros(1), tmp_path / "a", max_shard_size=size)


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


def test_missing_files_are_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        td.load(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        td.save(td.zeros(1), tmp_path / "folder" / "a")
    with pytest.raises(td.CheckpointError, match="not exactly one checkpoint"):
        td.load(tmp_path)


# -- interruption

KILLED = """
import sys, tandem as td
path, step = sys.argv[1], 0
while True:
    step += 1
    td.save({"step": step, "a": td.full((200_000,), float(step)), "b": td.full((50_000,), step)}, path, max_shard_size=SHARD)
    print(step, flush=True)
"""


@pytest.mark.parametrize("shard", [None, 500_000])
def test_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path, shard):
    path = tmp_path / "run.safetensors"
    generator, last = random.Random(1), 0
    for _ in range(6):
        code = KILLED.replace("SHARD", str(shard))
        with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) as process:
            process.stdout.readline()  # it has saved once
            time.sleep(generator.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
        state = td.load(path)
        last = state["step"]
        assert [last, last] == [float(state["a"].min()), float(state["a"].max())]
        assert [last, last] == [int(state["b"].min()), int(state["b"].max())]
    td.save({"step": 0, "a": td.zeros(1), "b": td.zeros(1)}, path)
    assert ["run.safetensors"] == os.listdir(tmp_path)  # what the killed ones left is gone


def test_a_full_disk_is_an_error_and_the_old_file_stays(tmp_path):
    path = tmp_path / "a"
    td.save({"w": td.ones(10)}, path)
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # writes fail behind this size, as on a full disk
    try:
        with pytest.raises(OSError, match="while saving"):
            td.save({"w": td.ones(100_000)}, path)
        with pytest.raises(OSError, match="while saving"):
            td.save({f"w{i}": td.ones(30_000) for i in range(3)}, path, max_shard_size=110_000)
        pending = td.checkpoint.save_async({"w": td.ones(100_000)}, path)
        with pytest.raises(OSError, match="while saving"):
            pending.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
    assert 10.0 == float(td.load(path)["w"].sum())
    assert ["a"] == os.listdir(tmp_path)


# -- in the background


def test_a_save_in_the_background_is_of_the_moment_it_was_asked_for(tmp_path):
    w = td.zeros(100_000)
    pending = td.checkpoint.save_async({"w": w}, tmp_path / "a")
    w += 1
    pending.wait()
    assert pending.done()
    assert 0.0 == float(td.load(tmp_path / "a")["w"].sum())


def test_an_error_in_the_background_that_nobody_asks_for_is_a_warning(tmp_path):
    pending = td.checkpoint.save_async(td.zeros(1), tmp_path / "no" / "a")
    pending._thread.join()
    with pytest.warns(ResourceWarning, match=r"saving .* failed"):
        del pending


# -- checksums


def test_crc32c_is_the_standard_one():
    assert 0xE3069283 == _runtime.crc32c(b"123456789")
    data = random.Random(2).randbytes(200_000)

    def slow(data, crc=0xFFFFFFFF):
        for byte in data:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        return crc ^ 0xFFFFFFFF

    assert slow(data) == _runtime.crc32c(data)
    assert _runtime.crc32c(data) == _runtime.crc32c(data[77:], _runtime.crc32c(data[:77]))
    large = np.frombuffer(random.Random(3).randbytes(5 << 20), np.uint8)
    expected = _runtime.crc32c(large.tobytes())
    assert [expected] == _runtime.checksum_tensors([td.from_numpy(large.copy())])
