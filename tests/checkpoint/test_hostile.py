"""Files that lie end in CheckpointError and nothing else, so that restore() passes over them."""

import json
import os

import pytest

import tandem as td
from tests.checkpoint import hostile

DATA = bytes(16)
W = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
DEEP = b"[" * 200_000


def header(**changes) -> bytes:
    return hostile.file({"w": W | changes}, None, DATA)


def ours(**changes) -> bytes:
    return hostile.file({"w": W}, {"version": 1, "crc32c": {}} | changes, DATA)


def structure(value) -> bytes:
    return ours(structure=value)


FILES = {
    "float axis": header(shape=[4.0]),
    "bool axis": header(shape=[True, 4]),
    "text axis": header(shape=["4"]),
    "huge axes, none of one": header(shape=[2**62, 4, 0], data_offsets=[0, 0]) + b"",
    "axis beyond 64 bits": header(shape=[2**70, 0]),
    "axes beyond any memory": hostile.file({"w": {"dtype": "F32", "shape": [2**40, 2**40, 0], "data_offsets": [0, 0]}}),
    "too many axes": hostile.file({"w": {"dtype": "F32", "shape": [1] * 40, "data_offsets": [0, 4]}}, None, bytes(4)),
    "float offsets": header(data_offsets=[0.0, 16.0]),
    "bool offsets": header(data_offsets=[False, 16]),
    "three offsets": header(data_offsets=[0, 16, 16]),
    "no offsets": header(data_offsets=None),
    "dtype of a list": header(dtype=["F32"]),
    "no dtype": header(dtype=None),
    "deep header": hostile.raw(DEEP),
    "deep entry": hostile.raw(b'{"w":' + DEEP),
    "list for a header": hostile.raw(b"[]"),
    "number for a header": hostile.raw(b"7"),
    "digits without end": hostile.raw(b'{"w":{"dtype":"F32","shape":[' + b"9" * 10_000 + b'],"data_offsets":[0,16]}}', DATA),
    "no number": hostile.raw(b'{"w":{"dtype":"F32","shape":[NaN],"data_offsets":[0,16]}}', DATA),
    "UTF-16": hostile.raw(json.dumps({"w": W}).encode("utf-16"), DATA),
    "list for metadata": hostile.raw(json.dumps({"__metadata__": ["tandem"], "w": W}).encode(), DATA),
    "number in metadata": hostile.raw(json.dumps({"__metadata__": {"tandem": 3, "tandem.crc32c": "0"}, "w": W}).encode(), DATA),
    "surrogate for a checksum": hostile.raw(b'{"__metadata__":{"tandem":"{}","tandem.crc32c":"\\ud800"}}'),
    "list of ours": hostile.file({"w": W}, [], DATA),
    "deep words of ours": hostile.file({"w": W}, "[" * 100_000, DATA),
    "version of text": ours(version="1"),
    "version of nothing": ours(version=None),
    "checksums of a list": ours(crc32c=["w"]),
    "checksum of a number": ours(crc32c={"w": 3}),
    "checksum with a sign": ours(crc32c={"w": "-0000001"}),
    "dtypes of text": ours(dtypes="w"),
    "dtype that does not fit": ours(dtypes={"w": "complex128"}),
    "dtype that does not exist": ours(dtypes={"w": "float31"}),
    "tensor that is not there": structure({"$tensor": "v"}),
    "tensor of a list": structure({"$tensor": ["w"]}),
    "tensor of a dict": structure({"$tensor": {}}),
    "set of lists": structure({"$set": [[1]]}),
    "set of a number": structure({"$set": 3}),
    "tuple of text": structure({"$tuple": "ab"}),
    "dict of text": structure({"$dict": ["ab"]}),
    "dict of lists": structure({"$dict": [[[], 1]]}),
    "float of a word": structure({"$float": "Infinity!"}),
    "float of a list": structure({"$float": []}),
    "complex of three": structure({"$complex": [1, 2, 3]}),
    "complex of text": structure({"$complex": ["1", "2"]}),
    "bytes of no base64": structure({"$bytes": "!!!!"}),
    "bytes of a number": structure({"$bytes": 3}),
    "dtype of no name": structure({"$dtype": "float31"}),
    "generator of text": structure({"$generator": ["a", "b"]}),
    "generator of huge numbers": structure({"$generator": [2**70, 1]}),
    "generator of one": structure({"$generator": [1]}),
    "word that is not known": structure({"$code": "import os"}),
    "two words": structure({"$tuple": [], "$set": []}),
    "gradients of integers": hostile.file(
        {"w": W | {"dtype": "I32"}},
        {"version": 1, "crc32c": {}, "structure": {"$tensor": "w", "requires_grad": True}}, DATA,
    ),
}  # fmt: skip


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_a_file_that_lies_is_refused(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    for mmap in (False, True):
        with pytest.raises(td.CheckpointError):
            td.load(tmp_path / "a", mmap=mmap)
    with pytest.raises(td.CheckpointError), open(tmp_path / "a", "rb") as stream:
        td.load(stream)


def index(weight_map, **metadata) -> str:
    return json.dumps({"metadata": metadata, "weight_map": weight_map})


INDICES = {
    "up": index({"w": ".."}),
    "here": index({"w": "."}),
    "nothing": index({"w": ""}),
    "outside": index({"w": "../a.safetensors"}),
    "absolute": index({"w": "/etc/passwd"}),
    "NUL": index({"w": "a\0b"}),
    "surrogate": index({"w": "\ud800"}),
    "long": index({"w": "a" * 3000}),
    "number": index({"w": 3}),
    "list": index({"w": ["a"]}),
    "folder": index({"w": "folder"}),
    "pipe": index({"w": "pipe"}),
    "loop": index({"w": "loop"}),
    "map of text": json.dumps({"weight_map": "ab"}),
    "map of nothing": json.dumps({"weight_map": None}),
    "metadata of text": json.dumps({"metadata": "ab", "weight_map": {}}),
    "ours of text": index({}, tandem="ab"),
    "version of text": index({}, tandem={"version": "ab"}),
    "checksum of a list": index({}, crc32c=[]),
    "deep": "[" * 200_000,
    "no JSON": "\x00",
    "list of all": "[]",
}


@pytest.mark.parametrize("text", INDICES.values(), ids=INDICES)
def test_an_index_that_lies_is_refused(tmp_path, text):
    os.mkdir(tmp_path / "folder")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "m.safetensors.index.json").write_text(text)
    for path in (tmp_path, tmp_path / "m.safetensors"):
        with pytest.raises(td.CheckpointError):
            td.load(path)


@pytest.mark.parametrize("content", [FILES["deep header"], FILES["set of lists"], FILES["axis beyond 64 bits"]])
def test_restore_passes_over_a_file_that_lies(tmp_path, content):
    manager = td.checkpoint.CheckpointManager(tmp_path, model=td.nn.Linear(1, 1))
    manager.save(1)
    (tmp_path / "step-00000002.safetensors").write_bytes(content)
    os.mkfifo(tmp_path / "step-00000003.safetensors")
    (tmp_path / "step-00000004.safetensors.index.json").write_text(INDICES["NUL"])
    with pytest.warns(UserWarning, match="passed over"):
        assert 1 == manager.restore()


RUNS = {
    "no random state": {"step": 2, "extra": None},
    "random state of text": {"step": 2, "random": "abc", "extra": None},
    "generators of text": {"step": 2, "random": {"tandem": ["a"], "python": [3, [1], None]}, "extra": None},
    "step of text": {"step": "two", "random": None, "extra": None},
    "text": "run",
}


@pytest.mark.parametrize("own", RUNS.values(), ids=RUNS)
def test_restore_passes_over_a_run_that_is_none(tmp_path, own):
    model = td.nn.Linear(1, 1)
    manager = td.checkpoint.CheckpointManager(tmp_path, model=model)
    manager.save(1)
    weights = {name: t.clone() + 1 for name, t in model.state_dict().items()}
    td.save({"model": weights, "checkpoint": own}, manager.path(2))
    before = model.weight.tolist()
    with pytest.raises(td.CheckpointError, match="state of a run"):
        manager.restore(2)
    assert before == model.weight.tolist()  # nothing was touched
    with pytest.warns(UserWarning, match="step 2 is passed over"):
        assert 1 == manager.restore()


def test_changed_headers_and_indices_are_loaded_or_refused(tmp_path):
    outcomes = hostile.fuzz(tmp_path, seed=1, count=200)
    assert outcomes["refused"] > 100
    assert outcomes["loaded"] > 5


@pytest.mark.slow
def test_many_changed_headers_and_indices_are_loaded_or_refused(tmp_path):
    for seed in range(5):
        hostile.fuzz(tmp_path, seed, 1000)
