"""A server on a socket."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from tests.serve.client import saved


@pytest.fixture
def server(tmp_path):
    pytest.importorskip("uvicorn")
    saved(tmp_path / "toy.model")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "tandem",
        "serve",
        f"toy={tmp_path / 'toy.model'}",
        "--port",
        str(port),
        "--queue",
        "4096",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5).read()
            break
        except OSError:
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.1)
    yield port, process
    process.kill()
    process.wait()
