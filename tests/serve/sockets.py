"""Clients on sockets."""

from __future__ import annotations

import asyncio
import json

import pytest

pytest.importorskip("uvicorn")


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
