"""Messages: what goes in comes out, memory is used again, and strangers are refused."""

import gc
import socket
import struct

import numpy as np
import pytest

import tandem as td
from tandem.distributed.cluster.wire import _KEPT, Closed, Connection, Published


@pytest.fixture
def ends():
    pair = [Connection(s) for s in socket.socketpair()]
    yield pair
    for end in pair:
        end.close()


def test_tensors_of_all_dtypes_and_sizes(ends):
    a, b = ends
    tensors = [
        td.tensor(3.5), td.zeros((0, 4)), td.arange(5), td.tensor([True, False]), td.ones((300, 300)), td.ones(4).to(td.bfloat16),
        td.ones((200, 400)).T, Published(td.ones((100, 300))), Published(td.ones(2)),
    ]  # fmt: skip
    a.send({"x": [1, None, "text"]}, tensors)
    content, found = b.receive()
    assert content == {"x": [1, None, "text"]}
    for sent, got in zip(tensors, found, strict=True):
        sent = getattr(sent, "tensor", sent)
        assert (sent.dtype, tuple(sent.shape)) == (got.dtype, tuple(got.shape))
        np.testing.assert_array_equal(sent.to(td.float32).numpy(), got.to(td.float32).numpy())


def test_shared_memory_is_used_again_once_nobody_reads_it(ends):
    a, b = ends
    data = np.random.default_rng(0).standard_normal((4, 50_000)).astype(np.float32)
    kept = None
    for k in range(4):
        a.send(k, [td.tensor(data[k])])
        _, (got,) = b.receive()
        np.testing.assert_array_equal(data[k], got.numpy())
        if k == 1:
            kept = got
        del got
        gc.collect()
        b.send("seen")
        a.receive()
    assert len(a._sent._memory) == 2  # one that is held, and one that goes round
    np.testing.assert_array_equal(data[1], kept.numpy())


def test_no_more_memory_is_kept_than_allowed(ends):
    a, b = ends
    held = []
    for k in range(3):
        a.send(k, [td.full((_KEPT // 8,), float(k), dtype=td.float32)])
        held.append(b.receive()[1][0])
    assert sum(m.bytes for m in a._sent._memory.values()) <= _KEPT
    assert [t[0].item() for t in held] == [0.0, 1.0, 2.0]


def test_what_is_no_message_closes_the_connection(ends):
    a, b = ends
    a.socket.sendall(struct.pack("<IQ", 2**31, 0))
    with pytest.raises(Closed):
        b.receive()


def test_a_tensor_that_is_cut_off_closes_the_connection(ends):
    a, b = ends
    text = b'[0,[["float32",[4],-1]]]'
    a.socket.sendall(struct.pack("<IQ", len(text), 16) + text + b"\0\0\0")
    a.close()
    with pytest.raises(Closed):
        b.receive()
