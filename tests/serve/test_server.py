"""The server on sockets: the command, many clients at one time, and a graceful stop."""

from __future__ import annotations

import signal
import urllib.request

import pytest

from tests.serve.sockets import ask_all

pytest.importorskip("uvicorn")


def test_clients_on_sockets_get_their_own_answers_and_the_server_stops_gracefully(server):
    port, process = server
    assert ask_all(port, 40) == [float(i) for i in range(40)]
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/").read()
    assert b"Tandem server" in page
    process.send_signal(signal.SIGTERM)
    assert process.wait(300) in (0, -signal.SIGTERM)


@pytest.mark.slow
def test_a_thousand_clients_at_one_time_lose_nothing(server):
    port, _ = server
    for _ in range(3):
        assert ask_all(port, 1000) == [float(i) for i in range(1000)]
