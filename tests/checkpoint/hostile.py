"""Checkpoints that nobody saved: headers and indices that say anything, with checksums that are right."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path

import tandem as td
from tandem.checkpoint import shards
from tandem.checkpoint.header import _ZEROS, _field, _sealed

NUMBERS = [-1, 0, 1, 2, 3, 7, 8, 2**31, 2**62, 2**63 - 1, 2**63, 10**30, -(2**63), 0.5, 4.0, -0.0, 1e300, True, False]
TEXTS = [
    "",
    "..",
    ".",
    "a\0b",
    "/etc/passwd",
    "../x",
    "\ud800",
    "ä" * 300,
    "w",
    "float32",
    "F32",
    "nan",
    "00000000",
    "$tensor",
]
THINGS = [None, [], {}, {"$tuple": 3}, {"$set": [[]]}, {"$float": 1}, {"$bytes": "!"}, {"$dict": [[1]]}, {"$complex": ["1", 2]},
          {"$generator": ["x"]}, {"$dtype": "int99"}, {"$tensor": ["w"]}, {"$tensor": "w", "numpy": True}, {"$new": 1}]  # fmt: skip


def file(described: dict, ours=None, data: bytes = b"", metadata: dict | None = None) -> bytes:
    """The bytes of a file with this header; `ours` is what stands under "tandem", and makes the checksum right."""
    metadata = {} if metadata is None else dict(metadata)
    if ours is not None:
        metadata |= {"tandem.crc32c": _ZEROS, "tandem": ours if isinstance(ours, str) else json.dumps(ours)}
    text = json.dumps({"__metadata__": metadata, **described}, separators=(",", ":")).encode()
    return raw(_sealed(text) if _field(_ZEROS) in text else text, data)


def raw(text: bytes, data: bytes = b"") -> bytes:
    return len(text).to_bytes(8, "little") + text + data


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def changed(value, generator: random.Random):
    """A copy with something else in some places."""
    value = copy.deepcopy(value)
    for _ in range(generator.choice([1, 1, 2, 3])):
        at = generator.choice(list(places(value)))
        new = copy.deepcopy(
            generator.choice([generator.choice(NUMBERS), generator.choice(TEXTS), generator.choice(THINGS)])
        )
        if not at:
            value = new if generator.random() < 0.1 else value
            continue
        around = value
        for key in at[:-1]:
            around = around[key]
        kind = generator.random()
        if kind < 0.1:
            del around[at[-1]]
        elif kind < 0.2 and isinstance(around, list):
            around.append(new)
        elif kind < 0.2:
            around[generator.choice(TEXTS)] = around[at[-1]]
        else:
            around[at[-1]] = new
    return value


def attempt(path) -> str:
    """What becomes of a file: loaded, or refused. Everything else goes on to the caller."""
    for mmap in (False, True):
        try:
            td.load(path, mmap=mmap)
        except td.CheckpointError:
            return "refused"
    return "loaded"


def fuzz(folder: Path, seed: int, count: int) -> dict[str, int]:
    """Loads `count` changed files and as many changed indices; gives how many were loaded and how many refused."""
    generator = random.Random(seed)
    outcomes = {"loaded": 0, "refused": 0}
    state = {
        "w": td.arange(4.0),
        "c": td.ones(2, dtype=td.complex128),
        "g": td.Generator(1),
        "deep": [(1, {2}), b"x", 1j, td.int8],
    }
    td.save(state, folder / "one")
    content = (folder / "one").read_bytes()
    length = int.from_bytes(content[:8], "little")
    described, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    metadata = described.pop("__metadata__")
    ours = json.loads(metadata["tandem"])
    td.save(state, folder / "model.safetensors", max_shard_size=40)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    for _ in range(count):
        both = changed([described, ours], generator)
        if not isinstance(both, list) or not both or not isinstance(both[0], dict):
            both = [described, both]
        (folder / "b").write_bytes(file(both[0], both[-1], data, metadata))
        outcomes[attempt(folder / "b")] += 1
        other = changed(index, generator)
        text = json.dumps(other)
        if isinstance(other, dict) and isinstance(other.get("metadata"), dict):
            text = shards.index_text(other)
        (folder / "model.safetensors.index.json").write_text(text)
        outcomes[attempt(folder / "model.safetensors.index.json")] += 1
    return outcomes
