"""The key-value service: what becomes of it, and of its clients, as programs come and go."""

import json
import socket
import struct
import threading
import time

import pytest

from tandem.distributed import store as module
from tandem.distributed.store import Service, Store, StoreError


@pytest.fixture
def served(monkeypatch):
    """A service as it is in a process of its own; the thread ends with it."""
    monkeypatch.setattr(module, "_LINGER", 0.3)
    service = Service()
    serving = threading.Thread(target=module.serve_clients, args=(service,))
    serving.start()
    yield service, serving
    service.state.until = 0.0
    serving.join()


def has_gone(condition, seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def test_what_a_program_told_goes_with_its_last_client(served):
    service, serving = served
    first, second = Store(service.address), Store(service.address)
    first.set("rank/0", "of the first program")
    second.bump("rank 1 failed")
    second.close()
    assert first.keys() == ["rank/0"]
    first.close()
    assert has_gone(lambda: service.state.clients)
    later = Store(service.address)
    assert (later.keys(), later.epoch()) == ([], 0)
    later.close()
    serving.join(300)
    assert not serving.is_alive()


def test_a_client_that_dies_as_it_waits_is_no_client_any_more(served):
    service, _ = served
    host, _, port = service.address.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        message = json.dumps(["get", "never", 1e6, None]).encode()
        connection.sendall(struct.pack("<I", len(message)) + message)
        assert has_gone(lambda: not service.state.clients)
    assert has_gone(lambda: service.state.clients)


def test_a_service_that_is_there_goes_on_for_the_next_program(served, monkeypatch):
    """Rank 0 of the next program finds the port taken, and its ranks come late."""
    service, serving = served
    begin = Store(service.address)
    begin.keys()
    module._serve(int(service.address.rpartition(":")[2]), "127.0.0.1")  # ends at once
    begin.close()
    assert has_gone(lambda: service.state.clients)
    assert service.state.until > time.monotonic() + 30
    assert serving.is_alive()


def test_a_service_that_ends_takes_no_client_and_the_next_one_does(monkeypatch):
    ending = Service()
    ending.state.ending = True
    port = int(ending.address.rpartition(":")[2])
    began = threading.Event()

    class Waiting(Service):
        def __init__(self, *place):
            super().__init__(*place)
            began.set()

    monkeypatch.setattr(module, "Service", Waiting)
    monkeypatch.setattr(module, "_LINGER", 0.0)
    later = threading.Thread(target=module._serve, args=(port, "127.0.0.1"))
    later.start()
    over = threading.Event()

    def use():
        client = Store(ending.address)
        client.set("key", 1)
        over.wait(300)  # a service without clients ends
        client.close()

    using = threading.Thread(target=use)
    using.start()
    assert not began.is_set()
    ending.close()
    assert began.wait(300)
    other = Store(ending.address)
    assert other.get("key") == 1
    over.set()
    using.join(300)
    other.close()
    later.join(300)
    assert not later.is_alive()


def test_something_else_at_the_address_is_said_at_once():
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            connection, _ = listening.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer).start()
        client = Store(f"127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(StoreError, match="something else"):
            client.keys()
