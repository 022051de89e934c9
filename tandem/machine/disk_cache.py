"""Files of the cache on disk: where they lie, who may have written them, how they are read, written and removed.

A file is named after what it is for and starts with its format and a checksum of its name and of what it holds; so one that is
damaged, or came under another's name, is made again. It is written beside its place and renamed into it: processes may share a
folder. Where the folder cannot be used, nothing is kept.

Note [Who may write]
What is kept is machine code, and programs that call it: whoever can write it can run code as the user. So folders are made for
their owner alone, and what is read must belong to this user or to root and be writable by nobody else, files as well as folders.
This is asked of what was opened, not of a name, which could be another's a moment later. Temporary files are new ones, never what
somebody put there. What is refused is said once, with the fix, and the process goes on without it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from _blake2 import blake2b  # without hashlib, which loads OpenSSL

from tandem.errors import warn
from tandem.switches import CACHE_MB

CHECKSUM_SIZE = 16
DAY = 24 * 3600.0

_stored = 0  # bytes written since the directory was last looked over
_trimmed_here: set[str] = set()
_refused: set[str] = set()  # folders that were told of


def read(path: str, format: bytes) -> bytes | None:
    """What a whole and undamaged file of this format holds, or None. One that was written under another name is damaged."""
    directory, name = os.path.split(path)
    folder = _open_folder(directory)
    if folder is None:
        return None
    try:
        content = _content(folder, directory, name)
    except OSError:
        return None
    finally:
        os.close(folder)
    start = len(format) + CHECKSUM_SIZE
    if content is None or content[:start] != format + _checksum(name, content[start:]):
        return None
    return content[start:]


def _content(folder: int, directory: str, name: str) -> bytes | None:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        distrust = _distrust(status)
        if distrust:
            _refuse(directory, f"the cache file {os.path.join(directory, name)} {distrust}")
            return None
        if time.time() - status.st_mtime > DAY:
            # The time of last use, for trimming; not on every use, and access times are often switched off.
            with contextlib.suppress(OSError):
                os.utime(descriptor)
        return os.read(descriptor, status.st_size)  # what is cut short has another checksum
    finally:
        os.close(descriptor)


def write(path: str, format: bytes, content: bytes) -> None:
    """Writes a file in one go, and removes old ones beside it if together they are too large. A full disk is no error."""
    global _stored
    directory, name = os.path.split(path)
    with contextlib.suppress(OSError):
        _make_folder(directory)
        folder = _open_folder(directory)
        if folder is None:
            return
        try:
            _write_whole(folder, name, format + _checksum(name, content) + content)
        finally:
            os.close(folder)
        _stored += len(content)
        # Looking at thousands of files takes a while: once per process, and after every 5% of the limit.
        if directory not in _trimmed_here or _stored > CACHE_MB.value * 2**20 // 20:
            _trimmed_here.add(directory)
            _stored = 0
            trim(directory, CACHE_MB.value * 2**20)


def _write_whole(folder: int, name: str, content: bytes) -> None:
    temporary = f"{name[:200]}.{os.getpid()}-{threading.get_ident()}-{os.urandom(4).hex()}.tmp"
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        with open(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:  # such as a full disk
        os.unlink(temporary, dir_fd=folder)
        raise


def _checksum(name: str, content: bytes) -> bytes:
    """Of a file's name too: names say what a file is for, and machine code for something else would be called in its place."""
    checksum = blake2b(name.encode(errors="surrogateescape") + b"\n", digest_size=CHECKSUM_SIZE)
    checksum.update(content)
    return checksum.digest()


# -- folders, and who may write into them


def make_folder(directory: str) -> bool:
    """Whether there is such a folder now, which nobody else may write into."""
    with contextlib.suppress(OSError):
        _make_folder(directory)
        folder = _open_folder(directory)
        if folder is not None:
            os.close(folder)
            return True
    return False


def _make_folder(directory: str) -> None:
    """With all above it, for this user alone whatever the umask."""
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        _make_folder(os.path.dirname(directory))
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700)


def _open_folder(directory: str) -> int | None:
    """A descriptor of a folder; None if it is not there, or others may have written into it."""
    try:
        folder = os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    above = os.path.dirname(directory) or "."
    for path, status in ((directory, os.fstat(folder)), (above, os.stat(above))):
        distrust = _distrust(status, shared=path is above)
        if distrust:
            os.close(folder)
            _refuse(directory, f"the cache folder {path} {distrust}")
            return None
    return folder


def _distrust(status: os.stat_result, shared: bool = False) -> str | None:
    """Why what somebody else may have written is not used; None for what only this user, or root, can have written.

    shared: a folder such as /tmp will do, in which others cannot touch what is ours
    """
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to another user (number {status.st_uid})"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not (shared and status.st_mode & stat.S_ISVTX):
        return f"can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def _refuse(directory: str, what: str) -> None:
    if directory in _refused:
        return
    _refused.add(directory)
    warn(
        f"{what}: it is not used, since it would be run as code\n  fix: remove the folder {directory}, or chmod -R go-w it if you "
        "trust all that is in it, or set TANDEM_CACHE_DIR to a folder of your own",
        UserWarning,
    )


def trim(directory: str, limit: int) -> None:
    """Remove what was not used for longest until nine tenths of `limit` bytes remain, and leftovers of dead writers."""
    entries = []
    with os.scandir(directory) as files:
        for file in files:
            with contextlib.suppress(OSError):  # another process may be trimming too
                status = file.stat(follow_symlinks=False)
                if file.name.endswith((".o", ".p", ".cubin")):
                    entries.append((max(status.st_mtime, status.st_atime), status.st_size, file.path))
                elif file.name.endswith(".tmp") and time.time() - status.st_mtime > DAY:
                    os.unlink(file.path)
    total = sum(size for _, size, _ in entries)
    if total <= limit:
        return
    for _, size, path in sorted(entries):
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size
        if total <= limit * 9 // 10:
            return
