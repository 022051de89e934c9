"""Tasks as processes: when they end, whoever else holds what they had from the one that began them."""

import os
import select
import subprocess
import sys

import pytest

from tandem.distributed.cluster.engines import Processes
from tandem.distributed.cluster.spec import ClusterSpec

PROGRAM = """
import os, signal
from tandem.distributed.cluster.engines import Processes
from tandem.distributed.cluster.spec import ClusterSpec

engine = Processes(ClusterSpec({"ps": 1}), 1)
if os.fork() == 0:
    os.write(1, f"{os.getpid()} {engine.processes['/job:ps/task:0'].pid}\\n".encode())
    signal.pause()
signal.pause()
"""


@pytest.fixture
def child():
    """Children that hold all that this process has open, until the test is over."""
    held = []

    def fork():
        ours, theirs = os.pipe()
        made = os.fork()
        if made == 0:
            try:
                os.close(theirs)
                os.read(ours, 1)
            finally:
                os._exit(0)
        os.close(ours)
        held.append((made, theirs))

    yield fork
    for made, theirs in held:
        os.close(theirs)
        os.waitpid(made, 0)


def test_tasks_end_though_a_child_of_the_controller_holds_their_input(child):
    engine = Processes(ClusterSpec({"ps": 1}), 1)
    child()
    process = engine.processes["/job:ps/task:0"]
    engine.close()
    assert process.returncode == 0  # nobody had to kill it


def test_tasks_end_with_a_controller_that_is_killed_and_not_with_its_children():
    controller = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    child, task = map(int, controller.stdout.readline().split())
    ending = os.pidfd_open(task)
    try:
        controller.kill()
        poll = select.poll()
        poll.register(ending, select.POLLIN)
        assert poll.poll(60_000)
    finally:
        os.close(ending)
        os.kill(child, 9)
        controller.wait()
        controller.stdout.close()
