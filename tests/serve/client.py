"""Requests to an ASGI application without sockets, and models to ask."""

from __future__ import annotations

import asyncio
import json
from typing import NamedTuple

import tandem as td


class Answer(NamedTuple):
    status: int
    headers: dict
    chunks: list

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    def json(self) -> dict:
        return json.loads(self.body)


async def ask(app, method: str, path: str, body=b"", headers=()) -> Answer:
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    pairs = [(k.encode(), str(v).encode()) for k, v in dict(headers).items()]
    scope = {"type": "http", "method": method, "path": path, "headers": pairs}
    sent: list[dict] = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    found = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
    return Answer(sent[0]["status"], found, [m["body"] for m in sent[1:] if m["body"]])


def together(*requests):
    """Runs coroutines at one time, in a loop of their own."""

    async def run():
        return await asyncio.gather(*requests)

    return asyncio.run(run())


def saved(path, fn=None):
    """A model of two inputs in a file: rows of x times a number, and their sums."""
    w = td.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

    def default(x, scale):
        return {"product": x @ w * scale, "sum": x.sum(1)}

    td.export.save(
        fn or default, (td.ones(2, 3), td.ones(2, 1)), path, input_names=["x", "scale"], output_names=["product", "sum"]
    )
    return path


def text_model():
    td.manual_seed(1)
    made = td.models.GPT2(vocabulary=30, context=48, layers=1, heads=2, width=16).eval()
    for p in made.parameters():
        if p.ndim == 2:
            td.nn.init.normal_(p, 0.0, 0.7)
    return made
