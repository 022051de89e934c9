"""save: one file, or shards with an index."""

from __future__ import annotations

import os
import re

from tandem import _runtime, dtypes, files
from tandem.checkpoint import shards
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
        groups = split(tensors, max_shard)
        kind = files.kind_of(path)
        if kind is not None:
            _write_special(path, kind, groups, structure)
            return
        if max_shard is not None and os.path.isdir(path):
            path = os.path.join(path, "model.safetensors")
        if len(groups) > 1:
            _write_shards(path, groups, structure, durable)
        else:
            _write_file(path, Layout(tensors, structure), tensors, durable, lambda: shards.remove_sharded(path))


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


def _write_file(path: str, layout: Layout, tensors: dict, durable: bool, after=lambda: None):
    offsets = layout.offsets
    checksums: list[int] = []
    with files.replaced(path, durable, after=after) as fd:
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


def _write_special(path: str, kind: str, groups: list[dict], structure):
    """Into a pipe or a device, which is never replaced."""
    if len(groups) > 1:
        raise ValueRangeError(
            "save", f"{path} is a {kind}, which takes one stream, and max_shard_size asks for {len(groups)} files"
        )
    with files.stream_to(path, kind) as stream:
        _write_stream(stream, groups[0], structure)


def _write_shards(path: str, groups: list[dict], structure, durable: bool):
    """Shards first, then the index that names them; so the old index and its shards stay whole until the new one is there."""
    claim = shards.Claim(path, len(groups))
    done = False
    try:
        weight_map = {}
        for name, group in zip(claim.names, groups, strict=True):
            _write_file(os.path.join(claim.folder, name), Layout(group, save=claim.id), group, durable)
            weight_map |= dict.fromkeys(group, name)
        ours = {"version": VERSION, "save": claim.id, "structure": structure}
        total = sum(nbytes(t) for group in groups for t in group.values())
        metadata = {"total_size": total, "tandem": ours}
        claim.commit(shards.index_text({"metadata": metadata, "weight_map": weight_map}), durable)
        done = True
    finally:
        claim.end(done)
