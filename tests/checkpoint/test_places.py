"""Where a checkpoint goes: devices and pipes are written to, long names work, links and modes stay."""

import io
import os
import stat
import threading

import pytest

import tandem as td


def test_a_pipe_is_written_to_and_read_from(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    td.save({"w": td.arange(5)}, pipe)
    reader.join()
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)
    assert [0, 1, 2, 3, 4] == td.load(io.BytesIO(found[0]))["w"].tolist()

    writer = threading.Thread(target=lambda: td.save({"w": td.arange(3)}, pipe))
    writer.start()
    assert [0, 1, 2] == td.load(pipe)["w"].tolist()
    writer.join()
    assert ["pipe"] == os.listdir(tmp_path)


@pytest.mark.parametrize("target", ["/dev/null", "/dev/full"])
def test_a_device_is_written_to(tmp_path, target):
    if not os.path.exists(target):
        pytest.skip(f"no {target} here")
    link = tmp_path / "device"
    link.symlink_to(target)
    for path in (target, link):
        if target == "/dev/full":
            with pytest.raises(OSError, match="No space left on device, while saving"):
                td.save({"w": td.arange(5)}, path)
        else:
            td.save({"w": td.arange(5)}, path)
        assert stat.S_ISCHR(os.stat(target).st_mode)
    assert link.is_symlink()


def test_shards_do_not_go_into_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"is a pipe, which takes one stream, and max_shard_size"):
        td.save({"a": td.ones(10), "b": td.ones(10)}, tmp_path / "pipe", max_shard_size=40)


def test_a_socket_is_refused_by_name(tmp_path):
    import socket

    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "socket"))
        with pytest.raises(ValueError, match=r"socket is a socket; what is saved is a file"):
            td.save(td.ones(1), tmp_path / "socket")
        with pytest.raises(td.CheckpointError, match=r"socket is a socket"):
            td.load(tmp_path / "socket")
    assert stat.S_ISSOCK(os.stat(tmp_path / "socket").st_mode)


def test_a_device_is_no_checkpoint_to_read():
    with pytest.raises(td.CheckpointError, match="/dev/zero is a device"):
        td.load("/dev/zero")


@pytest.mark.parametrize("letter", ["a", "ä"])
def test_the_longest_names_work(tmp_path, letter):
    count = 250 // len(letter.encode())
    path = tmp_path / (letter * count)
    for value in (1.0, 2.0):
        td.save({"w": td.full((3,), value)}, path)
    assert 2.0 == float(td.load(path)["w"][0])
    assert [path.name] == os.listdir(tmp_path)
    path = tmp_path / (letter * ((255 - 35) // len(letter.encode())) + ".safetensors")
    td.save({"a": td.ones(10), "b": td.ones(10)}, path, max_shard_size=40)
    assert {"a", "b"} == set(td.load(path))


def test_a_name_too_long_for_shards_is_an_error_that_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match="File name too long"):
        td.save({"a": td.ones(10), "b": td.ones(10)}, tmp_path / ("a" * 250), max_shard_size=40)
    assert [] == os.listdir(tmp_path)


def test_a_file_keeps_its_mode(tmp_path):
    path = tmp_path / "a"
    td.save(td.ones(1), path)
    os.chmod(path, 0o600)
    td.save(td.ones(2), path)
    assert 0o600 == stat.S_IMODE(os.stat(path).st_mode)


def test_leftovers_of_dead_processes_go_and_those_of_living_ones_stay(tmp_path):
    from tandem import files

    path = str(tmp_path / "a.safetensors")
    with files.replaced(path) as fd:
        td.save(td.ones(1), path)
        assert 2 == len(os.listdir(tmp_path))  # the other save is still under way
        os.write(fd, b"x")
    assert ["a.safetensors"] == os.listdir(tmp_path)
    (tmp_path / ".a.safetensors.0123456789ab.tmp").write_bytes(b"half a file")
    td.save(td.ones(1), path)
    assert ["a.safetensors"] == os.listdir(tmp_path)
