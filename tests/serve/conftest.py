"""A server on a socket."""

from __future__ import annotations

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
    command = [
        sys.executable,
        "-m",
        "tandem",
        "serve",
        f"toy={tmp_path / 'toy.model'}",
        "--port",
        "0",
        "--queue",
        "4096",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = iter(process.stdout.readline, "")
    address = next((line for line in lines if line.startswith("tandem serve: http:")), None)
    assert address, process.wait()
    port = int(address.rpartition(":")[2])
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
