"""Files of the cache: only what this user alone could write is read, nothing planted is followed, damage is missed."""

import os
import random
import stat
import subprocess
import sys
import time
import warnings

import pytest

from tandem.machine import disk_cache

FORMAT = b"tandem test 1\n"
OTHER = 54321  # a user that is not this one


@pytest.fixture(autouse=True)
def new_process(monkeypatch):
    monkeypatch.setattr(disk_cache, "_refused", set())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "kernels" / "k.o"


def give_away(path, monkeypatch):
    """Has a file or folder belong to somebody else."""
    if os.geteuid() == 0:
        os.chown(path, OTHER, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: OTHER)


def read(path) -> bytes | None:
    return disk_cache.read(str(path), FORMAT)


def write(path, content: bytes = b"content"):
    disk_cache.write(str(path), FORMAT, content)


def test_what_was_written_is_read(path):
    write(path)
    assert b"content" == read(path)


def test_folders_and_files_are_for_their_owner_alone_whatever_the_umask(tmp_path):
    path = tmp_path / "a" / "b" / "cache" / "kernels" / "k.o"
    before = os.umask(0)
    try:
        write(path)
    finally:
        os.umask(before)
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    for folder in (path.parent, *path.parents[1:4]):
        assert 0o700 == stat.S_IMODE(folder.stat().st_mode)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
@pytest.mark.parametrize("level", [0, 1])
def test_a_folder_that_others_can_write_is_refused_and_said_once(path, mode, level):
    write(path)
    os.chmod(path.parents[level], mode)
    with pytest.warns(UserWarning, match=r"can be written by others \(mode 07\d\d\).*\n.*fix: .*TANDEM_CACHE_DIR"):
        assert read(path) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(path) is None
        write(path, b"other")
    os.chmod(path.parents[level], 0o700)
    assert b"content" == read(path)  # nothing was written meanwhile


def test_a_shared_folder_with_the_sticky_bit_will_do(path):
    path.parents[1].mkdir()
    os.chmod(path.parents[1], 0o1777)
    write(path)
    assert b"content" == read(path)


def test_a_file_that_others_can_write_is_refused_and_replaced(path):
    write(path)
    os.chmod(path, 0o666)
    with pytest.warns(UserWarning, match=r"k.o can be written by others"):
        assert read(path) is None
    write(path)
    assert b"content" == read(path)


@pytest.mark.parametrize("what", ["file", "folder", "above"])
def test_what_belongs_to_another_user_is_refused(path, what, monkeypatch):
    write(path)
    if os.geteuid() != 0 and what == "file":
        pytest.skip("giving a file away needs root")
    give_away({"file": path, "folder": path.parent, "above": path.parents[1]}[what], monkeypatch)
    with pytest.warns(UserWarning, match="belongs to another user"):
        assert read(path) is None


def test_links_that_somebody_planted_are_not_followed(path, tmp_path):
    write(path)
    good = path.read_bytes()
    path.unlink()
    (tmp_path / "elsewhere.o").write_bytes(good)
    path.symlink_to(tmp_path / "elsewhere.o")
    assert read(path) is None
    write(path)
    assert not path.is_symlink()
    assert good == (tmp_path / "elsewhere.o").read_bytes()


def test_a_temporary_file_is_always_a_new_one(path, tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path.parent.mkdir(parents=True, mode=0o700)
    os.chmod(path.parents[1], 0o700)
    monkeypatch.setattr(os, "urandom", bytes)  # so that the name is known
    import threading

    name = f"k.o.{os.getpid()}-{threading.get_ident()}-00000000.tmp"
    (path.parent / name).symlink_to(victim)
    write(path)
    assert "precious" == victim.read_text()
    assert not path.exists()


def test_pipes_and_folders_in_the_place_of_a_file_are_missed(path):
    write(path)
    path.unlink()
    os.mkfifo(path)
    assert read(path) is None
    path.unlink()
    path.mkdir()
    assert read(path) is None
    write(path)
    assert path.is_dir()


def test_every_damage_is_missed(path):
    write(path, bytes(range(200)))
    good = path.read_bytes()
    generator = random.Random(1)
    for _ in range(300):
        changed = bytearray(good)
        changed[generator.randrange(len(good))] ^= 1 << generator.randrange(8)
        path.write_bytes(generator.choice([bytes(changed), good[: generator.randrange(len(good))], good + b"x"]))
        assert read(path) is None
    path.write_bytes(good)
    assert bytes(range(200)) == read(path)


def test_files_without_their_name_are_missed(path):
    """As they were before names were part of the checksum."""
    from hashlib import blake2b

    write(path)
    path.write_bytes(FORMAT + blake2b(b"content", digest_size=disk_cache.CHECKSUM_SIZE).digest() + b"content")
    assert read(path) is None


def test_trimming_removes_what_was_used_least_recently(tmp_path):
    for i, ending in enumerate(["o", "p", "cubin", "o", "p", "cubin", "o", "p", "cubin", "o"]):
        (tmp_path / f"{i}.{ending}").write_bytes(b"x" * 100)
        os.utime(tmp_path / f"{i}.{ending}", (1000 + i, 1000 + i))
    (tmp_path / "old.tmp").write_bytes(b"")
    os.utime(tmp_path / "old.tmp", (0, 0))
    (tmp_path / "new.tmp").write_bytes(b"")
    disk_cache.trim(str(tmp_path), 1000)
    assert 11 == len(list(tmp_path.iterdir()))
    disk_cache.trim(str(tmp_path), 500)
    assert {"6.o", "7.p", "8.cubin", "9.o", "new.tmp"} == {path.name for path in tmp_path.iterdir()}


KILLED = """
import sys
import tandem as td
print(flush=True)
for n in range(2, 8):
    f = td.compile(lambda x: (x * n + 1).exp().sum(0))
    f(td.ones(n, 3))
    print((td.ones(n, 3) / n).tanh().sum().item() > 0, flush=True)
"""


def test_death_while_kernels_are_kept_leaves_whole_files(tmp_path):
    """A later process finds what is whole, makes the rest, and computes the same."""
    environment = {**os.environ, "TANDEM_CACHE_DIR": str(tmp_path), "TANDEM_CACHE": "1", "TANDEM_PREBUILT": "0"}
    run = [sys.executable, "-c", KILLED]
    generator = random.Random(2)
    for _ in range(4):
        with subprocess.Popen(run, stdout=subprocess.PIPE, env=environment) as process:
            process.stdout.readline()
            time.sleep(generator.uniform(0, 0.4))
            process.kill()
    done = subprocess.run(run, capture_output=True, text=True, env=environment)
    assert ["True"] * 6 == done.stdout.split(), done.stderr
    assert "" == done.stderr
