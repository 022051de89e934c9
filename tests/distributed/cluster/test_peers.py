"""Calls of tasks: what a broken connection means."""

import os
import resource
import socket
import threading
import time

import pytest

from tandem.distributed.cluster import rpc
from tandem.distributed.cluster.peers import Peer
from tandem.distributed.cluster.rpc import Server
from tandem.distributed.cluster.task import Task, local
from tandem.distributed.cluster.wire import Connection


class Target:
    notices = {}

    def __init__(self):
        self.calls = {"ping": lambda connection, arguments, tensors: (True, ())}

    def left(self, connection):
        pass


def test_a_task_is_alive_though_one_connection_broke(tmp_path):
    place = str(tmp_path / "task")
    before = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before.bind(place)
    before.listen(1)
    started = []

    def replaced():
        """A server that ends as it is called, after another has taken its place."""
        accepted, _ = before.accept()
        started.append(Server(Target(), f"unix:{place}"))
        accepted.close()
        before.close()

    ending = threading.Thread(target=replaced)
    ending.start()
    peer = Peer("/job:ps/task:0", f"unix:{place}")
    assert peer.is_alive()
    ending.join()
    peer.close()
    started[0].close()
    assert not peer.is_alive()


def test_a_server_that_ends_leaves_the_name_to_its_successor(tmp_path):
    """Somebody who sees the first connection break starts another server before the old one has ended."""
    place = f"unix:{tmp_path}/task"
    old, started = Server(Target(), place), []
    peer = Peer("/job:ps/task:0", place)
    assert peer.is_alive()

    class Breaking:
        def close(self):
            started.append(Server(Target(), place))

    old._connections.add(Breaking())
    old.close()
    assert Peer("/job:ps/task:0", place).is_alive()
    peer.close()
    started[0].close()


def test_a_server_that_ends_late_leaves_the_name_to_its_successor(tmp_path):
    place = f"unix:{tmp_path}/task"
    old = Server(Target(), place)
    new = Server(Target(), place)
    old.close()
    peer = Peer("/job:ps/task:0", place)
    assert peer.is_alive()
    peer.close()
    new.close()
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_is_closed_twice_leaves_its_successor_where_it_is(tmp_path):
    place = f"unix:{tmp_path}/task"
    old = Task("/job:ps/task:0", place)
    old.close()
    new = Task("/job:ps/task:0", place)
    old.close()
    assert local[place] is new
    new.close()
    assert place not in local


@pytest.fixture
def restarted(monkeypatch):
    """A peer with several connections to a server on a port, of which only a successor is left; and what it was told."""
    monkeypatch.setattr(rpc, "_near_name", lambda family, place: None)
    told: list = []

    class Told(Target):
        notices = {"note": lambda arguments, tensors: told.append(arguments[0])}

    old = Server(Told(), "tcp:127.0.0.1:0")
    peer = Peer("/job:ps/task:0", old.address)
    for call in [peer.begin("ping") for _ in range(3)]:
        call.result()
    peer.notify("note", 1)
    while not told:
        time.sleep(0.001)
    old.close()
    new = Server(Told(), old.address)
    yield peer, told
    peer.close()
    new.close()


def test_connections_to_a_server_that_is_gone_do_not_hide_its_successor(restarted):
    peer, _ = restarted
    assert peer.is_alive()
    assert [call.result()[0] for call in [peer.begin("ping") for _ in range(3)]] == [True] * 3


def test_what_a_successor_is_told_is_not_sent_to_the_server_before_it(restarted):
    """Over TCP, what is sent to a process that has ended is lost without an error."""
    peer, told = restarted
    peer.notify("note", 2)
    end = time.monotonic() + 300
    while told != [1, 2]:
        assert time.monotonic() < end, told
        time.sleep(0.001)


def test_calls_wait_on_descriptors_of_any_number(tmp_path):
    """select() knows those below 1024."""
    server = Server(Target(), f"unix:{tmp_path}/task")
    connection = rpc.connect(server.address)
    before, high = connection.socket, 1500
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= high:
        pytest.skip("this process may not have so many descriptors")
    os.dup2(before.fileno(), high)
    moved = Connection(socket.socket(fileno=high))
    moved.send(["ping"])
    assert moved.has_come(30) and moved.receive()[0] == [True, True]
    moved.close()
    connection.close()
    server.close()
