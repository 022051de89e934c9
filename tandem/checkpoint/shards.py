"""Shards and the index that names them.

Note [Saves under one name]
Each save of shards has an id, in every shard and in the index, and names of shards that no other save has: it takes them for its
own under the lock of the folder (files.locked), by a journal, which is a temporary file that lists them. The index comes last, and
whoever puts it into place removes what the index before it named; so the index that is there always names shards of one save.
What a killed save left, its journal names: the next one removes that, unless the index names it.

A load that meets a shard of another id, or none, looks whether a new index has come meanwhile and begins again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re

from tandem import _runtime, files

JOURNAL = "journal"  # how names of journals end


def index_path(path: str) -> str:
    return f"{path}.index.json"


def index_text(index: dict) -> str:
    """The index as text, with a checksum of itself."""
    index["metadata"]["crc32c"] = ""
    index["metadata"]["crc32c"] = f"{_runtime.crc32c(json.dumps(index).encode()):08x}"
    return json.dumps(index, indent=1)


def _shards_of(index: str) -> re.Pattern:
    """Names of the shards that saves under the name of an index make."""
    stem = os.path.basename(index).removesuffix(".index.json").removesuffix(".safetensors")
    return re.compile(rf"{re.escape(stem)}(-v\d+)?-\d{{5,}}-of-\d{{5,}}\.safetensors", re.DOTALL)


def named_by(index: str) -> list[str]:
    """The shards that an index names: those that a save under its name may have made, and that may go with it."""
    ours = _shards_of(index)
    try:
        with open(index, encoding="utf-8") as file:
            names = json.load(file)["weight_map"].values()
        return sorted({name for name in names if isinstance(name, str) and ours.fullmatch(name)})
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []  # it names none that could be found


def remove_named(folder: str, names: list[str]):
    """The last first: whoever finds no first shard of some name takes all of them to be free. What cannot be removed stays."""
    for name in sorted(names, reverse=True):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))


def remove_abandoned(folder: str, name: str):
    """Removes what the journals of dead saves name, less what the index names. Within files.locked()."""

    def remove(fd: int):
        for line in os.pread(fd, os.fstat(fd).st_size, 0).splitlines():
            with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
                found = json.loads(line)
                index = os.path.join(folder, os.path.basename(found["index"]))
                ours, kept = _shards_of(index), set(named_by(index))
                remove_named(folder, [name for name in found["shards"] if ours.fullmatch(name) and name not in kept])

    files.remove_leftovers(folder, name, JOURNAL, remove)


def remove_sharded(path: str):
    """Removes the index of this name and what it names, now that one file has taken the place of both. Within files.locked()."""
    remove_abandoned(*os.path.split(path))
    index = index_path(path)
    if os.path.exists(index):
        remove_named(os.path.dirname(path), named_by(index))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(index)


def delete(path: str):
    """Removes the checkpoint of this name, be it one file or shards."""
    folder = os.path.dirname(path)
    with files.locked(folder):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        index = index_path(path)
        names = named_by(index)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(index)  # first: without it the shards are no checkpoint
        remove_named(folder, names)


class Claim:
    """Names for the shards of one save, which are its own until it is done; see Note [Saves under one name]."""

    def __init__(self, path: str, count: int):
        self.folder, name = os.path.split(path)
        stem = name.removesuffix(".safetensors")
        self.index = index_path(os.path.join(self.folder, f"{stem}.safetensors"))
        self.id = os.urandom(8).hex()
        with files.locked(self.folder):
            remove_abandoned(self.folder, name)
            files.remove_leftovers(self.folder, name)
            taken = os.listdir(self.folder or ".")
            prefix, generation = stem, 1
            while any(re.match(rf"{re.escape(prefix)}-\d+-of-\d+\.safetensors$", old) for old in taken):
                generation += 1
                prefix = f"{stem}-v{generation}"
            self.names = [f"{prefix}-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
            self._journal, self._fd = files.new_temporary(self.folder, name, JOURNAL)
            try:
                self._write_journal(self.names)
                os.close(os.open(os.path.join(self.folder, self.names[0]), os.O_WRONLY | os.O_CREAT, 0o666))
            except BaseException:
                self.end(False)
                raise

    def _write_journal(self, names: list[str]):
        """Adds a line: whoever is killed in between leaves the lines before it."""
        line = json.dumps({"index": os.path.basename(self.index), "shards": names}) + "\n"
        os.pwrite(self._fd, line.encode(), os.fstat(self._fd).st_size)

    def commit(self, text: str, durable: bool):
        """Puts the index into place and removes what is older."""
        view = memoryview(text.encode())
        with files.replaced(self.index, durable, self._note_older, self._remove_older) as fd:
            while view:
                view = view[os.write(fd, view) :]

    def _note_older(self):
        """What the index that is about to be replaced names; in the journal too, so that it goes if we die now."""
        self._older = [name for name in named_by(self.index) if name not in self.names]
        self._write_journal(self._older)

    def _remove_older(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.index.removesuffix(".index.json"))  # what stood there unsharded is older than the index
        remove_named(self.folder, self._older)

    def end(self, done: bool):
        """Gives up what was claimed, unless it is done."""
        if not done:
            remove_named(self.folder, self.names)
        with contextlib.suppress(OSError):
            os.unlink(self._journal)
        os.close(self._fd)
