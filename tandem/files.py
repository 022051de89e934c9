"""Files that are replaced whole: a crash at any byte leaves the old one. Every file that users name is written this way.

A new file is written beside the old one under a temporary name, brought to the disk, and renamed.

Note [Leftovers]
A process that is killed leaves temporary files behind; the next save under the name removes them. Whether their writer still lives
is asked of the file system: a writer holds a lock on its temporary file (flock), which ends with it, on this machine or another. A
file system without such locks keeps leftovers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Callable

from tandem.errors import CheckpointError, ValueRangeError

_LONGEST = 200  # bytes of a name that are part of temporary names; file systems take 255 in all
TEMPORARY = "tmp"  # how names of such files end


def is_url(path) -> bool:
    """Whether a path needs fsspec: s3://..., memory://..."""
    return isinstance(path, str) and bool(re.match(r"[a-z][a-z0-9+.-]*://", path)) and not path.startswith("file://")


def local(path) -> str:
    """The path of a local file, links followed, so that a link's target is replaced and not the link."""
    text = os.fspath(path)
    text = os.fsdecode(text).removeprefix("file://")
    # What a link of /proc leads to, such as a pipe, has no other name.
    return text if kind_of(text) else os.path.realpath(text)


def kind_of(path: str) -> str | None:
    """What else than a file or folder is there: "pipe", "device", "disk", "socket"; None for those, and for nothing at all."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return None
    tests = {"pipe": stat.S_ISFIFO, "device": stat.S_ISCHR, "disk": stat.S_ISBLK, "socket": stat.S_ISSOCK}
    return next((kind for kind, is_it in tests.items() if is_it(mode)), None)


def filesystem(url: str):
    """(fsspec file system, path in it)"""
    try:
        import fsspec
    except ImportError:
        raise CheckpointError(
            "files", f"{url} needs the package fsspec", fix="pip install fsspec, or 'tandem-dl[data]'"
        ) from None
    return fsspec.core.url_to_fs(url)


def write(path, content: str | bytes, durable: bool = True) -> None:
    """Makes `content` that of a file, which is replaced whole; a pipe or character device is written into.

    path: a file name, or a URL that fsspec knows
    durable: wait until the disk has it, so that it survives a power cut
    """
    data = content.encode() if isinstance(content, str) else content
    if is_url(path):
        system, name = filesystem(path)
        with system.open(name, "wb") as stream:
            stream.write(data)
        return
    path = local(path)
    kind = kind_of(path)
    if kind is not None:
        with stream_to(path, kind) as stream:
            stream.write(data)
        return
    with replaced(path, durable) as fd, open(fd, "wb", closefd=False) as file:
        file.write(data)


@contextlib.contextmanager
def stream_to(path: str, kind: str):
    """A pipe or character device, open for writing front to back."""
    if kind not in ("pipe", "device"):
        raise ValueRangeError("save", f"{path} is a {kind}; what is saved is a file", fix="name a file")
    with _named(path), os.fdopen(os.open(path, os.O_WRONLY | os.O_CLOEXEC), "wb") as stream:
        yield stream


@contextlib.contextmanager
def replaced(
    path: str,
    durable: bool = True,
    before: Callable[[], None] = lambda: None,
    after: Callable[[], None] = lambda: None,
):
    """A descriptor of a new file that takes the place of `path` at the end; after an error the old file is as it was.

    before, after: called when it does; no other save in this folder comes between
    """
    folder, name = os.path.split(path)
    remove_leftovers(folder, name)
    with _named(path):
        temporary, fd = new_temporary(folder, name)
        try:
            yield fd
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(fd, stat.S_IMODE(os.stat(path).st_mode))
            if durable:
                os.fsync(fd)
            with locked(folder):
                before()
                os.replace(temporary, path)
                after()
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        finally:
            os.close(fd)  # not before it has its name: without its lock it would be a leftover
    if durable:
        sync_folder(folder)


@contextlib.contextmanager
def _named(path: str):
    """Errors of the system that name the file: Python's text for a failed write does not."""
    try:
        yield
    except OSError as error:
        if isinstance(error.strerror, str) and error.strerror.endswith("while saving"):
            raise
        raise type(error)(error.errno, f"{os.strerror(error.errno or 0)}, while saving", path) from error


def new_temporary(folder: str, name: str, ending: str = TEMPORARY) -> tuple[str, int]:
    """(path, descriptor) of a new file for `name`, locked; see Note [Leftovers]."""
    while True:
        path = os.path.join(folder, f".{_short(name)}.{os.urandom(6).hex()}.{ending}")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return path, fd
        os.close(fd)  # another save saw it before it was locked


def _short(name: str) -> str:
    encoded = os.fsencode(name)
    return name if len(encoded) <= _LONGEST else encoded[: _LONGEST - 20].decode(errors="ignore")


@contextlib.contextmanager
def locked(folder: str):
    """While inside, no other save puts files into place in this folder or takes any away, where the file system has locks."""
    fd = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)  # a child forked meanwhile has the descriptor too
        os.close(fd)


def sync_folder(folder: str):
    """Brings renames in a folder to the disk."""
    fd = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError:
        pass  # some network file systems have no such call
    finally:
        os.close(fd)


def remove_leftovers(
    folder: str, name: str, ending: str = TEMPORARY, last_words: Callable[[int], None] = lambda fd: None
):
    """Removes temporary files for `name`, its shards and index of processes that are gone.

    last_words: called with a descriptor of each before it goes
    """
    start = f".{_short(name.removesuffix('.safetensors'))}"
    temporary = re.compile(rf"\..*\.[0-9a-f]{{12}}\.{ending}", re.DOTALL)
    try:
        with os.scandir(folder or ".") as entries:
            found = [e.path for e in entries if e.name.startswith(start) and temporary.fullmatch(e.name)]
    except FileNotFoundError:
        raise FileNotFoundError(2, "No such folder, while saving", folder) from None
    for path in found:
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # an error where its writer lives
                last_words(fd)
                os.unlink(path)
            finally:
                os.close(fd)
