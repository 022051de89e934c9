"""load, and open for reading single tensors."""

from __future__ import annotations

import builtins
import contextlib
import glob
import io
import json
import mmap as memory_map
import os
from collections.abc import Mapping
from pathlib import Path

from tandem import _runtime, files
from tandem.checkpoint import header
from tandem.checkpoint.shards import index_path
from tandem.checkpoint.structure import decode
from tandem.checkpoint.writer import as_bytes
from tandem.errors import CheckpointError


def load(path, map_location=None, *, mmap: bool = False, verify: bool = True, device=None, weights_only: bool = True):
    """What `save` wrote. A safetensors file of another program gives its tensors by name; so do GGUF files, whose quantised tensors
    become float32, and files of weights that torch.save wrote, of which nothing is run.

    mmap: map the file instead of reading it: elements come from the disk when they are first used, and changes stay in memory
    verify: compare the checksums (not with mmap, which would read everything)
    weights_only: as PyTorch has it; files hold no code, so it is always so

    >>> import tempfile, os
    >>> name = os.path.join(tempfile.mkdtemp(), "state.safetensors")
    >>> td.save([td.zeros(2), ("a", 1.5)], name)
    >>> td.load(name, mmap=True)
    [tensor([0., 0.]), ('a', 1.5)]
    """
    where = device if device is not None else map_location
    state = _foreign(path)
    if state is not None:
        return state if where is None else _moved(state, where)
    if mmap:
        with open(path) as file:
            state = file.state()
    else:
        source = _open(path)
        try:
            tensors = source.read_all(verify)
            state = source.assemble(tensors.__getitem__)
        finally:
            source.close()
    return state if where is None else _moved(state, where)


def _foreign(path):
    """What a file of another format holds; None for ours."""
    if hasattr(path, "read") or files.is_url(path) or not os.path.isfile(files.local(path)):
        return None
    path = files.local(path)
    with builtins.open(path, "rb") as file:
        start = file.read(9)
    if start[8:] == b"{" or start[:1] in (b"{", b""):  # safetensors, an index of shards
        return None
    from tandem.checkpoint.foreign import read_foreign  # pickles and zip archives are not imported for files of our own

    return read_foreign(path)


def _moved(value, device):
    if isinstance(value, _runtime.Tensor):
        return value.to(device=device)
    if isinstance(value, dict):
        return {key: _moved(item, device) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(item, device) for item in value)
    return value


class CheckpointFile(Mapping):
    """The tensors of a file or of shards by name, mapped when asked for. Tensors stay valid after close(). A file that nobody
    refers to any more is closed."""

    def __init__(self, source):
        self._source = source

    def __getitem__(self, name: str):
        return self._source.map(name)

    def __iter__(self):
        return iter(self._source.names)

    def __len__(self):
        return len(self._source.names)

    def __contains__(self, name):
        return name in self._source.names

    @property
    def metadata(self) -> dict:
        """The text entries of the file's header."""
        return self._source.metadata

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, without reading it."""
        return self._source.entry(name).shape

    def dtype(self, name: str):
        """The dtype of a tensor, without reading it."""
        return self._source.entry(name).dtype

    def state(self):
        """The whole nested state, its tensors mapped."""
        return self._source.assemble(self._source.map)

    def verify(self):
        """Reads everything and compares the checksums; raises CheckpointError where they differ."""
        self._source.read_all(True)

    def close(self):
        self._source.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __repr__(self):
        return f"<{type(self).__name__} {self._source.path}: {len(self)} tensors>"


def open(path) -> CheckpointFile:
    """A file, or shards, for reading single tensors from: a mapping from name to tensor.

    >>> import tempfile, os
    >>> name = os.path.join(tempfile.mkdtemp(), "state.safetensors")
    >>> td.save({"a": td.ones(2), "b": td.zeros(3)}, name)
    >>> with td.checkpoint.open(name) as file:
    ...     print(list(file), file["a"])
    ['a', 'b'] tensor([1., 1.])
    """
    return CheckpointFile(_open(path))


def _open(path):
    if hasattr(path, "read"):
        return _Stream(path, getattr(path, "name", "<file>"))
    if files.is_url(path):
        system, name = files.filesystem(path)
        return _Stream(system.open(name, "rb"), path)
    path = files.local(path)
    if files.kind_of(path) == "pipe":
        return _Stream(io.BytesIO(Path(path).read_bytes()), path)
    while True:
        found = _resolve(path)
        if not found.endswith(".json"):
            return _File(found)
        text = _read_index(found)
        try:
            return _Shards(found, text)
        except CheckpointError:
            if (found, text) == (again := _resolve(path), _read_index(again)):
                raise
            # Another save has come meanwhile; see Note [Saves under one name].


def _resolve(path: str) -> str:
    """The file, or the index, that a path means."""
    if os.path.isdir(path):
        path = _in_folder(path)
    if path.endswith(".json") or os.path.exists(path):
        return path
    for index in (index_path(path), index_path(path + ".safetensors")):
        if os.path.exists(index):
            return index
    return path


def _read_index(path: str) -> bytes | None:
    """What is in an index; None if it is not there, or no index."""
    with contextlib.suppress(OSError):
        if path.endswith(".json") and os.path.isfile(path):
            return Path(path).read_bytes()
    return None


def _in_folder(path: str) -> str:
    indices = glob.glob(os.path.join(glob.escape(path), "*.index.json"))
    single = glob.glob(os.path.join(glob.escape(path), "*.safetensors"))
    if len(indices) == 1:
        newer = indices[0].removesuffix(".index.json")  # one file took the place of the index, which is about to go
        return newer if newer in single else indices[0]
    if not indices and len(single) == 1:
        return single[0]
    found = ", ".join(sorted(map(os.path.basename, indices + single))) or "none"
    raise CheckpointError("load", f"the folder {path} has not exactly one checkpoint: {found}", fix="name the file")


class _Source:
    """What files and shards share."""

    def assemble(self, tensor_of):
        if not self.has_structure:
            return {name: tensor_of(name) for name in self.names}
        made = {}  # so that what was one tensor becomes one again

        def once(name: str):
            if not isinstance(name, str) or name not in self.names:
                raise CheckpointError("load", f"{self.path} is damaged: its structure names {name}, which it has not")
            if name not in made:
                made[name] = tensor_of(name)
            return made[name]

        with header.untrusted(self.path, "its structure makes no sense"):
            return decode(self.structure, once)

    @property
    def names(self):
        return self.entries

    def entry(self, name) -> header.Entry:
        try:
            return self.entries[name]
        except KeyError:
            raise CheckpointError(
                "load", f"{self.path} has no tensor {name!r}", fix="list(file) gives the names"
            ) from None

    def _take_header(self, found: header.Header):
        self.entries, self.metadata = found.entries, found.metadata
        self.structure, self.has_structure, self.save = found.structure, found.has_structure, found.save


class _File(_Source):
    def __init__(self, path: str):
        self.path, self.fd = path, -1
        self._map = None
        kind = files.kind_of(path)
        if kind is not None:  # opening one may wait for ever
            raise CheckpointError("load", f"{path} is a {kind}; a checkpoint is a file", fix="name a file")
        if "\0" in path:
            raise CheckpointError("load", f"{path!r} is the name of no file")
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            size = os.fstat(self.fd).st_size
            self._take_header(header.parse(path, size, self._read))
        except BaseException:
            self.close()
            raise

    def _read(self, begin: int, count: int) -> bytes:
        parts = []
        while count:
            part = os.pread(self.fd, count, begin)
            if not part:
                raise CheckpointError("load", f"{self.path} became shorter while it was read")
            parts.append(part)
            begin, count = begin + len(part), count - len(part)
        return b"".join(parts)

    def read_all(self, verify: bool) -> dict:
        entries = list(self.entries.values())
        with header.untrusted(self.path, "it has a tensor that there cannot be"):
            tensors = _room_for(entries)
        try:
            checksums = _runtime.read_tensors(self.fd, tensors, [e.begin for e in entries])
        except EOFError:
            raise CheckpointError("load", f"{self.path} became shorter while it was read") from None
        if verify:
            header.check(self.path, entries, checksums)
        return dict(zip(self.entries, tensors, strict=True))

    def map(self, name: str):
        entry = self.entry(name)
        if entry.bytes == 0:
            return _runtime.empty(entry.shape, entry.dtype)
        if self._map is None:
            self._map = memory_map.mmap(self.fd, 0, access=memory_map.ACCESS_COPY)
        raw = _runtime.from_buffer(memoryview(self._map)[entry.begin : entry.begin + entry.bytes])
        if entry.begin % min(entry.dtype.itemsize, 8):  # files of other programs need not be aligned
            made = _runtime.empty(entry.shape, entry.dtype)
            as_bytes(made)[:] = memoryview(raw)
            return made
        return _runtime.reinterpret(raw, entry.shape, _row_major(entry.shape), entry.dtype)

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    __del__ = close  # as Python's own files: who forgets a file shall not run out of descriptors


_LARGE = 1 << 20


def _room_for(entries: list[header.Entry]) -> list:
    """New tensors. Large ones get pages of their own unless freed memory is there: for memory that is filled once, the huge pages
    that the allocator asks for can cost more time (to put together) than they save."""
    stats = _runtime.memory_stats()
    spare = stats["reserved_bytes"] - stats["live_bytes"] >= sum(e.bytes for e in entries)
    made = []
    for e in entries:
        if spare or e.bytes < _LARGE:
            made.append(_runtime.empty(e.shape, e.dtype))
        else:
            pages = memory_map.mmap(-1, e.bytes, flags=memory_map.MAP_PRIVATE | memory_map.MAP_ANONYMOUS)
            made.append(_runtime.reinterpret(_runtime.from_buffer(pages), e.shape, _row_major(e.shape), e.dtype))
    return made


def _row_major(shape: tuple) -> tuple:
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= max(n, 1)
    return tuple(strides)


class _Stream(_Source):
    """A file that can only be read in order or by position, such as one on another machine."""

    def __init__(self, stream, path):
        self.path, self.stream = path, stream
        size = stream.seek(0, os.SEEK_END)
        size = stream.tell() if size is None else size
        self._take_header(header.parse(path, size, self._read))

    def _read(self, begin: int, count: int) -> bytes:
        self.stream.seek(begin)
        parts = []
        while count:
            part = self.stream.read(count)
            if not part:
                raise CheckpointError("load", f"{self.path} became shorter while it was read")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def map(self, name: str):
        return self._one(self.entry(name), True)

    def _one(self, entry, verify: bool):
        made = _runtime.empty(entry.shape, entry.dtype)
        as_bytes(made)[:] = self._read(entry.begin, entry.bytes)
        if verify:
            header.check(self.path, [entry], _runtime.checksum_tensors([made]))
        return made

    def read_all(self, verify: bool) -> dict:
        return {name: self._one(entry, verify) for name, entry in self.entries.items()}

    def close(self):
        pass  # the caller's


class _Shards(_Source):
    """text: what the index `path` says."""

    def __init__(self, path: str, text: bytes | None):
        self.path = path
        if text is None:
            raise FileNotFoundError(2, "No such file", path)
        with header.untrusted(path, "it cannot be read as an index"):
            found = header.json_of(text)
            weight_map, metadata = dict(found["weight_map"]), dict(found.get("metadata") or {})
            if not all(isinstance(name, str) for name in weight_map.values()):
                raise TypeError("it names shards by something else than text")
            _check_index(path, found, metadata)
            ours = metadata.pop("tandem", {})
            header.check_version(path, ours)
            self.metadata = metadata
            self.structure, self.has_structure, self.save = ours.get("structure"), "structure" in ours, ours.get("save")
        self.files: dict[str, _File] = {}
        try:
            for name in dict.fromkeys(weight_map.values()):
                self.files[name] = self._open_shard(name)
            self._find(weight_map)
        except BaseException:
            self.close()
            raise

    def _open_shard(self, name: str) -> _File:
        if os.path.basename(name) != name or name in ("", ".", "..") or "\0" in name:
            raise CheckpointError("load", f"{self.path} names {name!r}, which is no file in its own folder")
        try:
            shard = _File(os.path.join(os.path.dirname(self.path), name))
        except FileNotFoundError:
            raise CheckpointError("load", f"the shard {name} that {self.path} names is missing") from None
        except (OSError, ValueError) as error:
            raise CheckpointError("load", f"the shard {name} that {self.path} names cannot be read: {error}") from None
        if self.save is not None and shard.save != self.save:
            shard.close()
            raise CheckpointError(
                "load", f"the shard {name} is of another save than {self.path}, which names it",
                fix="restore both from a copy, or load an older checkpoint",
            )  # fmt: skip
        return shard

    def _find(self, weight_map: dict[str, str]):
        self.entries, self._file_of = {}, {}
        for tensor, name in weight_map.items():
            file = self.files[name]
            if tensor not in file.entries:
                raise CheckpointError("load", f"the shard {name} has no {tensor}, though {self.path} says so")
            self.entries[tensor], self._file_of[tensor] = file.entries[tensor], file

    def map(self, name: str):
        self.entry(name)
        return self._file_of[name].map(name)

    def read_all(self, verify: bool) -> dict:
        tensors = {}
        for file in self.files.values():
            tensors |= file.read_all(verify)
        return tensors

    def close(self):
        for file in self.files.values():
            file.close()


def _check_index(path: str, found: dict, metadata: dict):
    own = metadata.get("crc32c")
    if own is not None:
        sealed = {**found, "metadata": {**metadata, "crc32c": ""}}
        if own != f"{_runtime.crc32c(json.dumps(sealed).encode()):08x}":
            raise header.damaged(path, "its checksum does not match")
