"""Files that are replaced whole: a crash at any byte leaves the old one.

A new file is written beside the old one under a temporary name, brought to the disk, and renamed. Names tell the process, so that
what a killed process left behind is removed by the next save.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re

from tandem.errors import CheckpointError

_COUNT = itertools.count()


def is_url(path) -> bool:
    """Whether a path needs fsspec: s3://..., memory://..."""
    return isinstance(path, str) and bool(re.match(r"[a-z][a-z0-9+.-]*://", path)) and not path.startswith("file://")


def local(path) -> str:
    """The path of a local file, links followed, so that a link's target is replaced and not the link."""
    text = os.fspath(path)
    return os.path.realpath(text.removeprefix("file://"))


def filesystem(url: str):
    """(fsspec file system, path in it)"""
    try:
        import fsspec
    except ImportError:
        raise CheckpointError(
            "files", f"{url} needs the package fsspec", fix="pip install fsspec, or 'tandem[data]'"
        ) from None
    return fsspec.core.url_to_fs(url)


@contextlib.contextmanager
def replaced(path: str, durable: bool = True):
    """A descriptor of a new file that takes the place of `path` at the end; after an error the old file is as it was."""
    folder, name = os.path.split(path)
    remove_leftovers(folder, name)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}-{next(_COUNT)}.tmp")
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            yield fd
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            # Python's text for a failed write has no file name.
            raise type(error)(error.errno, f"{os.strerror(error.errno or 0)}, while saving", path) from error
        raise
    if durable:
        sync_folder(folder)


def sync_folder(folder: str):
    """Brings renames in a folder to the disk."""
    fd = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError:
        pass  # some network file systems have no such call
    finally:
        os.close(fd)


def remove_leftovers(folder: str, name: str):
    """Removes temporary files (or folders) for `name` of processes that are gone."""
    stem = re.escape(name.removesuffix(".safetensors"))  # shards and index too
    pattern = re.compile(rf"\.{stem}.*\.(\d+)-\d+\.tmp")
    try:
        found = [
            (entry.path, pattern.fullmatch(entry.name))
            for entry in os.scandir(folder or ".")
            if entry.name.startswith(".")
        ]
    except FileNotFoundError:
        raise FileNotFoundError(2, "No such folder, while saving", folder) from None
    for path, match in found:
        if match and int(match[1]) != os.getpid() and not _alive(int(match[1])):
            with contextlib.suppress(OSError):
                if os.path.isdir(path):
                    import shutil

                    shutil.rmtree(path)
                else:
                    os.unlink(path)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
