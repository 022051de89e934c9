"""Calls of tasks: what a broken connection means."""

import socket
import threading

from tandem.distributed.cluster.peers import Peer
from tandem.distributed.cluster.rpc import Server


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
