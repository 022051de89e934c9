"""The application behind Ray Serve: several replicas, and one that dies."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import socket
import sys
import time
import urllib.request

import pytest

from tandem.errors import CheckpointError
from tests.serve.client import saved
from tests.serve.sockets import infer

pytestmark = [pytest.mark.oracle, pytest.mark.slow]


@pytest.fixture(scope="module")
def serve():
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs ray[serve]")
    try:
        from ray import serve
    except ImportError as error:
        pytest.skip(f"needs ray[serve]: {error}")
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False,
             runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}})  # fmt: skip
    yield serve
    serve.shutdown()
    ray.shutdown()


def ask(port: int, numbers) -> list:
    async def run():
        return await asyncio.gather(*(infer(port, i) for i in numbers), return_exceptions=True)

    return asyncio.run(run())


def test_replicas_answer_and_one_that_dies_is_replaced(serve, tmp_path):
    from tandem.serve.ray import application

    saved(tmp_path / "toy.model")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    serve.start(http_options={"port": port})
    serve.run(application({"toy": tmp_path / "toy.model"}, num_replicas=2, ray_actor_options={"num_cpus": 0.5}))
    assert ask(port, range(40)) == [float(i) for i in range(40)]
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/").read()
    assert b"Tandem server" in page and b"toy" in page
    victims = replicas()
    assert len(victims) == 2
    os.kill(victims[0], signal.SIGKILL)
    failed, whole, end = 0, 0, time.monotonic() + 120
    while whole < 5 and time.monotonic() < end:
        answers = ask(port, range(10))  # each has an answer of its own or an error: none is left waiting
        assert all(isinstance(a, Exception) or a == float(i) for i, a in enumerate(answers)), answers
        errors = sum(isinstance(a, Exception) for a in answers)
        failed, whole = failed + errors, 0 if errors else whole + 1
    assert whole == 5, f"{failed} requests failed, the last ones too"
    assert failed <= 10, "more were lost than those in flight when it died"
    while time.monotonic() < end and len(replicas()) < 2:
        time.sleep(0.5)
    assert len(replicas()) == 2 and victims[0] not in replicas()
    assert ask(port, range(40)) == [float(i) for i in range(40)]


def replicas() -> list[int]:
    return [int(p) for p in os.listdir("/proc") if p.isdigit() and b"ServeReplica:default:tandem" in _command(p)]


def _command(pid: str) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read()
    except OSError:
        return b""


def test_files_that_are_missing(serve, tmp_path):
    from tandem.serve.ray import application

    with pytest.raises(CheckpointError, match="there is no file"):
        application({"toy": tmp_path / "none.model"})
