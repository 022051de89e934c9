"""Shards and their index: what belongs to another checkpoint stays, and two saves never become one."""

import json
import os
import shutil
import subprocess
import sys
import threading

import pytest

import tandem as td


def state(value: float, count: int = 3) -> dict:
    return {f"w{i}": td.full((10,), value) for i in range(count)}


def values(path) -> set[float]:
    return {float(x) for t in td.load(path).values() for x in t.tolist()}


@pytest.mark.parametrize("other", ["model_ema", "model2", "model-v2", "model-ema", "model-00001-of-00003"])
def test_a_save_leaves_the_shards_of_checkpoints_with_longer_names(tmp_path, other):
    td.save(state(1.0), tmp_path / f"{other}.safetensors", max_shard_size=40)
    for value in (2.0, 3.0):
        td.save(state(value), tmp_path / "model.safetensors", max_shard_size=40)
    assert {1.0} == values(tmp_path / f"{other}.safetensors")
    assert {3.0} == values(tmp_path / "model.safetensors")
    td.save(state(4.0), tmp_path / "model.safetensors")
    assert {1.0} == values(tmp_path / f"{other}.safetensors")
    assert {4.0} == values(tmp_path / "model.safetensors")


def test_files_that_the_index_does_not_name_stay(tmp_path):
    kept = tmp_path / "model-00007-of-00009.safetensors"
    kept.write_bytes(b"somebody's")
    for _ in range(2):
        td.save(state(1.0), tmp_path / "model.safetensors", max_shard_size=40)
    td.save(state(2.0), tmp_path / "model.safetensors")
    assert b"somebody's" == kept.read_bytes()
    assert ["model-00007-of-00009.safetensors", "model.safetensors"] == sorted(os.listdir(tmp_path))


def test_an_index_cannot_have_other_files_removed(tmp_path):
    (tmp_path / "notes.safetensors").write_text("mine")
    weight_map = {"a": "notes.safetensors", "b": "../x.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    td.save(state(1.0), tmp_path / "model.safetensors", max_shard_size=40)
    assert "mine" == (tmp_path / "notes.safetensors").read_text()


def test_deleting_a_step_leaves_what_is_not_its_own(tmp_path):
    manager = td.checkpoint.CheckpointManager(tmp_path, max_shard_size=100, model=td.nn.Linear(30, 2))
    manager.save(1)
    td.save(state(5.0), tmp_path / "step-00000001-best.safetensors", max_shard_size=40)
    manager.delete(1)
    assert [] == manager.steps()
    assert {5.0} == values(tmp_path / "step-00000001-best.safetensors")


def test_a_shard_of_another_save_is_noticed(tmp_path):
    td.save(state(1.0), tmp_path / "a.safetensors", max_shard_size=40)
    td.save(state(2.0), tmp_path / "b.safetensors", max_shard_size=40)
    shutil.copy(tmp_path / "b-00002-of-00003.safetensors", tmp_path / "a-00002-of-00003.safetensors")
    for mmap in (False, True):
        with pytest.raises(td.CheckpointError, match=r"a-00002-of-00003.safetensors is of another save"):
            td.load(tmp_path / "a.safetensors", mmap=mmap)


def test_a_folder_with_a_file_and_an_older_index_gives_the_file(tmp_path):
    td.save(state(1.0), tmp_path / "model.safetensors", max_shard_size=40)
    td.save(state(2.0), tmp_path / "new")
    os.rename(tmp_path / "new", tmp_path / "model.safetensors")  # as after a crash before the index is gone
    assert {2.0} == values(tmp_path)


def test_one_shard_in_a_folder_is_a_file_of_it(tmp_path):
    td.save(state(1.0), tmp_path, max_shard_size=10**6)
    assert ["model.safetensors"] == os.listdir(tmp_path)


SAVER = """
import sys, tandem as td
path, value, count = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
for _ in range(count):
    td.save({f"w{i}": td.full((5000,), value) for i in range(4)}, path, max_shard_size=20_000, durable=False)
"""


def test_two_processes_that_save_under_one_name_are_never_mixed(tmp_path):
    path = tmp_path / "model.safetensors"
    td.save(state(0.0), path, max_shard_size=40)
    savers = [subprocess.Popen([sys.executable, "-c", SAVER, str(path), str(v), "60"]) for v in (1, 2)]
    seen = set()
    while any(p.poll() is None for p in savers):
        seen.add(frozenset(values(path)))
    assert [0, 0] == [p.returncode for p in savers]
    seen.add(frozenset(values(path)))
    assert seen <= {frozenset({v}) for v in (0.0, 1.0, 2.0)}
    assert 5 == len(os.listdir(tmp_path))  # the last save's, and nothing of those before


def test_threads_that_save_under_one_name_are_never_mixed(tmp_path):
    path = tmp_path / "model.safetensors"

    def work(value: float):
        for i in range(20):
            td.save(state(value), path, max_shard_size=None if i % 3 == 2 else 40, durable=False)

    threads = [threading.Thread(target=work, args=(float(v),)) for v in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert 1 == len(values(path))
    assert len(os.listdir(tmp_path)) in (1, 4)


KILLED = """
import os, sys, tandem as td
from tandem import files
path, steps = sys.argv[1], int(sys.argv[2])
count = 0
def dying(call):
    def wrapped(*args, **kwargs):
        global count
        count += 1
        if count == steps:
            os._exit(9)
        return call(*args, **kwargs)
    return wrapped
for name in ("open", "replace", "unlink", "write", "ftruncate", "fsync"):
    setattr(os, name, dying(getattr(os, name)))
td.save({f"w{i}": td.full((10,), 2.0) for i in range(4)}, path, max_shard_size=SHARD)
print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("before", [None, 40])
@pytest.mark.parametrize("after", [None, 40])
def test_death_at_every_system_call_leaves_the_old_or_the_new_and_no_litter(tmp_path, before, after):
    path = tmp_path / "model.safetensors"
    for steps in range(1, 100):
        td.save(state(1.0), path, max_shard_size=before)
        code = KILLED.replace("SHARD", str(after))
        made = subprocess.run([sys.executable, "-c", code, str(path), str(steps)], capture_output=True, text=True)
        assert values(path) in ({1.0}, {2.0})
        td.save(state(3.0), path, max_shard_size=before)
        assert {3.0} == values(path)
        assert (1 if before is None else 4) == len(os.listdir(tmp_path)), (steps, os.listdir(tmp_path))
        if "done" in made.stdout:
            return
        assert 9 == made.returncode, made.stderr
    raise AssertionError("it never came to its end")
