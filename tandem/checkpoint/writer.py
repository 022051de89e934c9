"""save: one file, or shards with an index."""

from __future__ import annotations

import glob
import json
import os
import re

from tandem import _runtime, dtypes
from tandem.checkpoint import files
from tandem.checkpoint.header import Layout
from tandem.checkpoint.structure import VERSION, Encoder
from tandem.errors import ValueRangeError

_GROUP = 1 << 26  # bytes of tensors that are prepared before they are written; only what is not contiguous is copied


def save(obj, path, *, max_shard_size: int | str | None = None, durable: bool = True) -> None:
    """Saves tensors and nested state (dicts, lists, tuples, numbers, text, arrays) as a safetensors file.

    path: a file name, a URL that fsspec knows, or an open binary file. An old file is replaced only when the new one is complete.
    max_shard_size: in bytes, or as "5GB"; more than that becomes several files name-00001-of-00003.safetensors and an index
    durable: wait until the disk has it, so that it survives a power cut

    >>> import tempfile, os
    >>> name = os.path.join(tempfile.mkdtemp(), "state.safetensors")
    >>> td.save({"weight": td.ones(2), "epoch": 3}, name)
    >>> td.load(name)
    {'weight': tensor([1., 1.]), 'epoch': 3}
    """
    encoder = Encoder()
    structure = encoder.encode(obj)
    write(encoder.tensors, structure, path, parse_size(max_shard_size), durable)


def write(tensors: dict, structure, path, max_shard: int | None, durable: bool):
    """Writes what an Encoder made."""
    if hasattr(path, "write"):
        _write_stream(path, tensors, structure)
    elif files.is_url(path):
        system, name = files.filesystem(path)
        with system.open(name, "wb") as stream:
            _write_stream(stream, tensors, structure)
    else:
        path = files.local(path)
        shards = split(tensors, max_shard)
        if len(shards) > 1:
            _write_shards(path, shards, structure, durable)
        else:
            _write_file(path, tensors, structure, True, durable)
            _remove_shards(path)


def parse_size(size: int | str | None) -> int | None:
    """Bytes, from a number or text such as "5GB" or "200MiB"."""
    if size is None or isinstance(size, int):
        found = size
    else:
        match = re.fullmatch(r"\s*([\d.]+)\s*([KMGT]?)(i?)B\s*", size)
        if not match:
            raise ValueRangeError("save", f"max_shard_size={size!r} is no size", fix='write bytes, or "5GB", "200MiB"')
        found = int(float(match[1]) * (1024 if match[3] else 1000) ** " KMGT".index(match[2] or " "))
    if found is not None and found <= 0:
        raise ValueRangeError("save", f"max_shard_size={size!r} must be more than 0")
    return found


def nbytes(t) -> int:
    return t.numel() * t.dtype.itemsize


def split(tensors: dict, limit: int | None) -> list[dict]:
    """Tensors in order, in groups of at most `limit` bytes; a larger one is a group of its own."""
    if limit is None or not tensors:
        return [tensors]
    groups, used = [{}], 0
    for name, t in tensors.items():
        if groups[-1] and used + nbytes(t) > limit:
            groups.append({})
            used = 0
        groups[-1][name] = t
        used += nbytes(t)
    return groups


def _write_file(path: str, tensors: dict, structure, has_structure: bool, durable: bool):
    layout = Layout(tensors, structure, has_structure)
    offsets = layout.offsets
    checksums: list[int] = []
    with files.replaced(path, durable) as fd:
        group, first, used = [], 0, 0
        for i, name in enumerate(layout.names):
            t = tensors[name]
            group.append(t if t.is_contiguous() else t.contiguous())
            used += 0 if t.is_contiguous() else nbytes(t)
            if used > _GROUP or i + 1 == len(layout.names):
                checksums += _runtime.write_tensors(fd, group, offsets[first : i + 1], durable)
                group, first, used = [], i + 1, 0
        header = layout.header(checksums)
        if os.pwrite(fd, header, 0) != len(header):
            raise OSError(28, "No space left on device")
        if layout.size == layout.start:
            os.ftruncate(fd, layout.size)


def as_bytes(t):
    """The memory of a contiguous tensor as a writable-if-it-is memoryview."""
    count = nbytes(t)
    if count == 0:
        return memoryview(bytearray())
    return memoryview(_runtime.reinterpret(t.detach(), (count,), (1,), dtypes.uint8))


def _write_stream(stream, tensors: dict, structure):
    """Front to back, for files that cannot be written at a position."""
    layout = Layout(tensors, structure)
    stream.write(layout.header([_runtime.checksum_tensors([tensors[name].contiguous()])[0] for name in layout.names]))
    for name in layout.names:
        stream.write(as_bytes(tensors[name].contiguous()))


def index_path(path: str) -> str:
    return f"{path}.index.json"


def _write_shards(path: str, shards: list[dict], structure, durable: bool):
    """Shards first, then the index that names them; so the old index and its shards stay whole until the new one is there."""
    folder, name = os.path.split(path)
    stem = name.removesuffix(".safetensors")
    if os.path.isdir(path):
        folder, stem = path, "model"
    index = os.path.join(folder, f"{stem}.safetensors.index.json")
    pattern = os.path.join(folder, f"{glob.escape(stem)}*-of-*.safetensors")
    before = set(glob.glob(pattern)) if os.path.exists(index) else set()
    written, weight_map = [], {}
    prefix, generation = stem, 1
    while any(os.path.basename(old).startswith(f"{prefix}-0") for old in before):  # in use by the old index
        generation += 1
        prefix = f"{stem}-v{generation}"
    for i, shard in enumerate(shards):
        file = f"{prefix}-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        _write_file(os.path.join(folder, file), shard, None, False, durable)
        written.append(file)
        weight_map |= dict.fromkeys(shard, file)
    ours = {"version": VERSION, "structure": structure}
    total = sum(nbytes(t) for shard in shards for t in shard.values())
    text = index_text({"metadata": {"total_size": total, "tandem": ours}, "weight_map": weight_map}).encode()
    with files.replaced(index, durable) as fd:
        view = memoryview(text)
        while view:
            view = view[os.write(fd, view) :]
    if os.path.isfile(path):  # what stood there unsharded is older than the index
        os.unlink(path)
    for old in before - {os.path.join(folder, file) for file in written}:
        os.unlink(old)


def _remove_shards(path: str):
    """What a sharded save left under this name is older than the file that is there now."""
    index = index_path(path)
    if os.path.exists(index):
        os.unlink(index)
        for old in glob.glob(glob.escape(path.removesuffix(".safetensors")) + "-*-of-*.safetensors"):
            os.unlink(old)


def index_text(index: dict) -> str:
    """The index as text, with a checksum of itself."""
    index["metadata"]["crc32c"] = ""
    index["metadata"]["crc32c"] = f"{_runtime.crc32c(json.dumps(index).encode()):08x}"
    return json.dumps(index, indent=1)
