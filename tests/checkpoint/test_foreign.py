"""Weights in the files of PyTorch and of llama.cpp: read as tensors, never run."""

import collections
import contextlib
import io
import pickle
import struct
import zipfile

import numpy as np
import pytest

import tandem as td
from tandem.checkpoint.foreign import read_gguf
from tandem.checkpoint.foreign.gguf import FORMATS


def gguf_file(path, tensors, metadata=()):
    """tensors: {name: (shape, kind, bytes)}; metadata: {key: uint32}"""
    text = lambda s: struct.pack("<Q", len(s.encode())) + s.encode()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in dict(metadata).items():
        head += text(key) + struct.pack("<II", 4, value)
    body = b""
    for name, (shape, kind, data) in tensors.items():
        head += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in reversed(shape))
        head += struct.pack("<IQ", kind, len(body))
        body += data + bytes(-len(data) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + body)
    return path


def test_a_gguf_file_gives_its_tensors(tmp_path):
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    eights = np.arange(32, dtype=np.int8)
    block = np.float16(0.5).tobytes() + eights.tobytes()
    path = gguf_file(tmp_path / "m.gguf", {"a": ((2, 3), 0, a.tobytes()), "q": ((1, 32), 8, block)}, {"layers": 7})
    state = td.load(path)
    assert a.tolist() == state["a"].tolist()
    assert (eights * 0.5).tolist() == state["q"][0].tolist()
    assert {"layers": 7} == read_gguf(path)[1]


def test_damaged_gguf_files_are_refused(tmp_path):
    whole = gguf_file(tmp_path / "m.gguf", {"a": ((2, 3), 0, bytes(24))}).read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(200):
        data = bytearray(whole[: rng.integers(4, len(whole) + 1)])
        for _ in range(rng.integers(0, 4)):
            data[rng.integers(4, len(data))] = rng.integers(0, 256) if len(data) > 4 else 71
        (tmp_path / "d.gguf").write_bytes(bytes(data))
        with contextlib.suppress(td.CheckpointError, td.UnsupportedError):
            td.load(tmp_path / "d.gguf")


class Runs:
    def __reduce__(self):
        return (print, ("this must not be printed",))


def torch_zip(path, obj):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(obj, 2))
    return path


def test_a_file_of_pytorch_that_would_run_code_is_refused(tmp_path, capsys):
    with pytest.raises(td.CheckpointError, match=r"names \S+\.print, which is neither a tensor nor a container"):
        td.load(torch_zip(tmp_path / "m.pt", {"a": Runs()}))
    assert "" == capsys.readouterr().out


def test_plain_values_of_a_file_of_pytorch(tmp_path):
    state = collections.OrderedDict(epoch=3, rates=[0.5, (1, "x")])
    assert {"epoch": 3, "rates": [0.5, (1, "x")]} == td.load(torch_zip(tmp_path / "m.pt", state))


@pytest.mark.parametrize(
    "data, what",
    [
        (pickle.dumps({"a": 1}), "a pickle, which could run code"),
        (b"\x89HDF\r\n\x1a\n" + bytes(64), "an HDF5 file"),
        (b"\x93NUMPY" + bytes(64), "a NumPy array"),
    ],
    ids=["pickle", "hdf5", "npy"],
)
def test_other_files_are_named(tmp_path, data, what):
    path = tmp_path / "other"
    path.write_bytes(data)
    with pytest.raises(td.CheckpointError, match=f"other is {what}"):
        td.load(path)


@pytest.mark.oracle
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_state_dicts_of_pytorch(tmp_path, zipped):
    torch = pytest.importorskip("torch")
    state = collections.OrderedDict(
        a=torch.randn(3, 4), b=torch.arange(5), c=torch.randn(4, 4).T, d=torch.tensor(2.5, dtype=torch.bfloat16),
        e=torch.nn.Parameter(torch.randn(2)), f=torch.zeros(0, 3), g=torch.tensor([True, False]), h=torch.randn(8)[2:5],
    )  # fmt: skip
    torch.save({"model": state, "lr": 0.1}, tmp_path / "m.pt", _use_new_zipfile_serialization=zipped)
    read = td.load(tmp_path / "m.pt")
    assert 0.1 == read["lr"]
    for name, t in state.items():
        assert str(t.dtype).partition(".")[2] == str(read["model"][name].dtype)
        assert t.tolist() == read["model"][name].tolist()
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pt")
    with pytest.raises(td.CheckpointError, match=r"names torch\.nn\.modules\.linear\.Linear"):
        td.load(tmp_path / "module.pt")


@pytest.mark.oracle
@pytest.mark.parametrize("kind", sorted(set(FORMATS) - {24, 25, 26, 27, 28}))
def test_blocks_of_llama_cpp(tmp_path, kind):
    gguf = pytest.importorskip("gguf")
    kind = gguf.GGMLQuantizationType(kind)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    raw = np.random.default_rng(0).integers(0, 100, (3, 2 * size), dtype=np.uint8)  # exponents that give no NaN
    path = gguf_file(tmp_path / "m.gguf", {"q": ((3, 2 * elements), int(kind), raw.tobytes())})
    expected = gguf.quants.dequantize(raw, kind).reshape(3, 2 * elements)
    np.testing.assert_array_equal(td.load(path)["q"].to(td.float32).numpy(), expected.astype(np.float32))


def zip_file(path, pickled: bytes, data: bytes, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/data/0", data)
    return path


class _Named:
    """Pickles as a name of PyTorch's, or a call of it."""

    def __init__(self, name: str, *args):
        self.name, self.args = name, args


class _Pickler(pickle._Pickler):
    """Writes what PyTorch's does, without it."""

    def persistent_id(self, obj):
        return obj.args if isinstance(obj, _Named) and obj.name == "storage" else None

    def save(self, obj, save_persistent_id=True):
        if isinstance(obj, _Named) and obj.name != "storage":
            module, _, name = obj.name.rpartition(".")
            self.write(b"c" + f"{module}\n{name}\n".encode())
            if obj.args:
                self.save(obj.args)
                self.write(pickle.REDUCE)
            return
        super().save(obj, save_persistent_id)


def pickled(state) -> bytes:

    out = io.BytesIO()
    _Pickler(out, 2).dump(state)
    return out.getvalue()


def tensor_of(dtype: str, shape, strides, count: int):
    storage = _Named("storage", "storage", _Named("torch.storage.UntypedStorage"), "0", "cpu", count)
    return _Named("torch._utils._rebuild_tensor_v3", storage, 0, shape, strides, False, None, _Named(f"torch.{dtype}"))


def test_types_without_storages_of_their_own(tmp_path):
    values = np.array([1, 2, 65535], np.uint16)
    state = pickled({"w": tensor_of("uint16", (3,), (1,), 6)})
    read = td.load(zip_file(tmp_path / "m.pt", state, values.tobytes()))
    assert td.uint16 is read["w"].dtype and [1, 2, 65535] == read["w"].tolist()
    state = pickled({"w": tensor_of("float8_e4m3fn", (2,), (1,), 2)})
    assert [1.0, -2.0] == td.load(zip_file(tmp_path / "e.pt", state, bytes([0x38, 0xC0])))["w"].tolist()


def test_small_files_that_would_fill_the_memory_are_refused(tmp_path):
    state = pickled({"w": tensor_of("float32", (1 << 20, 1 << 20), (0, 0), 4)})
    with pytest.raises(td.CheckpointError, match="elements that are 1 in its storage"):
        td.load(zip_file(tmp_path / "m.pt", state, bytes(4)))
    state = pickled({"w": tensor_of("float32", (1,), (1,), 4)})
    with pytest.raises(td.CheckpointError, match="is compressed"):
        td.load(zip_file(tmp_path / "c.pt", state, bytes(1 << 20), zipfile.ZIP_DEFLATED))


def test_damaged_archives_end_in_errors_of_ours(tmp_path):
    good = zip_file(tmp_path / "m.pt", pickled({"w": tensor_of("int32", (2,), (1,), 8)}), bytes(8)).read_bytes()
    for i in range(len(good)):
        for value in (0, 0x7F, 0xFF):
            (tmp_path / "x.pt").write_bytes(good[:i] + bytes([value]) + good[i + 1 :])
            with contextlib.suppress(td.CheckpointError):
                td.load(tmp_path / "x.pt")
