"""Writing files."""

import io
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest

import tandem as td
from tandem import _runtime, dtypes
from tests.checkpoint.states import nested, same


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_dtype(tmp_path, dtype):
    raw = bytes(range(1, 1 + 3 * dtype.itemsize)) if dtype is not td.bool else b"\1\0\1"
    tensor = _runtime.from_bytes(raw, dtype, (3,))
    td.save({"x": tensor, "byte": td.ones(1, dtype=td.uint8)}, tmp_path / "a")
    for mmap in (False, True):
        found = td.load(tmp_path / "a", mmap=mmap)["x"]
        assert (dtype, (3,), raw) == (found.dtype, found.shape, _runtime.to_bytes(found))


def test_gradients_are_asked_for_again(tmp_path):
    td.save([td.ones(1, requires_grad=True), td.ones(1)], tmp_path / "a")
    assert [True, False] == [t.requires_grad for t in td.load(tmp_path / "a")]


def test_streams_and_urls(tmp_path):
    pytest.importorskip("fsspec")
    state = nested()
    stream = io.BytesIO()
    td.save(state, stream)
    assert same(state, td.load(stream))
    td.save(state, "memory://run/a.safetensors")
    assert same(state, td.load("memory://run/a.safetensors"))


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


# -- interruption

KILLED = """
import sys, tandem as td
path, step = sys.argv[1], 0
while True:
    step += 1
    td.save({"step": step, "a": td.full((200_000,), float(step)), "b": td.full((50_000,), step)}, path, max_shard_size=SHARD)
    print(step, flush=True)
"""


KILLED_AT = """
import os, signal, sys
import tandem as td
from tandem.checkpoint import shards

folder = sys.argv[1]

def save(value, **options):
    td.save({f"w{i}": td.full((10,), value) for i in range(3)}, os.path.join(folder, "run.safetensors"), **options)

def killed_at(line):  # the first line of this module that runs after so many others
    left = line
    def trace(frame, event, arg):
        nonlocal left
        if frame.f_code.co_filename != shards.__file__:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)
    save(2.0, max_shard_size=40)
    os._exit(0)

for line in range(1000):
    save(1.0, max_shard_size=40)
    child = os.fork()
    if child == 0:
        killed_at(line)
    status = os.waitpid(child, 0)[1]
    value = float(td.load(os.path.join(folder, "run.safetensors"))["w2"][0])
    save(3.0)
    print(line, value, *os.listdir(folder))
    if os.WIFEXITED(status):
        break
"""


def test_a_save_of_shards_that_is_killed_at_any_line_leaves_nothing_behind(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", KILLED_AT, str(tmp_path)], capture_output=True, text=True, check=True,
        env={**os.environ, "TANDEM_NUM_THREADS": "1"},
    )  # fmt: skip
    rows = [row.split() for row in ran.stdout.splitlines()]
    assert all(["run.safetensors"] == row[2:] for row in rows)
    assert {"1.0", "2.0"} == {row[1] for row in rows} and len(rows) > 20


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
