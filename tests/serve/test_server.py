"""The server on sockets: the command, many clients at one time, and a graceful stop."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from tests.browser import Browser
from tests.serve.client import saved

pytest.importorskip("uvicorn")


@pytest.fixture
def server(tmp_path):
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


async def infer(port: int, number: int) -> float:
    """Asks for the sum of a row that has this number; over a connection of its own."""
    data = [number, 0, 0]
    body = json.dumps({"inputs": [
        {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": data},
        {"name": "scale", "shape": [1, 1], "datatype": "FP32", "data": [1]},
    ]}).encode()  # fmt: skip
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST /v2/models/toy/infer HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
    return json.loads(answer.split(b"\r\n\r\n", 1)[1])["outputs"][1]["data"][0]


def ask_all(port: int, clients: int) -> list[float]:
    async def run():
        return await asyncio.gather(*(infer(port, i) for i in range(clients)))

    return asyncio.run(run())


def test_clients_on_sockets_get_their_own_answers_and_the_server_stops_gracefully(server):
    port, process = server
    assert ask_all(port, 40) == [float(i) for i in range(40)]
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/").read()
    assert b"Tandem server" in page
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) in (0, -signal.SIGTERM)


@pytest.mark.slow
def test_a_thousand_clients_at_one_time_lose_nothing(server):
    port, _ = server
    for _ in range(3):
        assert ask_all(port, 1000) == [float(i) for i in range(1000)]


@pytest.mark.slow
def test_the_status_page_in_a_browser(server):
    port, _ = server
    ask_all(port, 3)
    with Browser() as page:
        page.open(f"http://127.0.0.1:{port}/")
        assert page.run("document.title") == "Tandem server"
        cells = page.run("[...document.querySelectorAll('tbody td')].map(c => c.textContent)")
        assert cells[:3] == ["toy", "1", "tensor"] and "x: f32" in cells[3]
        assert "ready" in page.run("document.querySelector('dl').textContent")
        assert ", 0 refused" in page.run("document.querySelector('dl').textContent")
        page.run("document.querySelector('a[href=\"/metrics\"]').click()")
        page.wait_for("document.body.textContent.includes('tandem_requests_total')")
        assert not [p for p in page.problems if "favicon" not in p]
