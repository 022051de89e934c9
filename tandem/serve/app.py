"""The ASGI application: paths, limits, time-outs, errors, and a graceful stop."""

from __future__ import annotations

import asyncio
import json
import time
import traceback

from tandem import __version__
from tandem.errors import TandemError
from tandem.serve import inference
from tandem.serve.completions import Completion
from tandem.serve.errors import RequestError, described, invalid
from tandem.serve.metrics import SECONDS
from tandem.serve.status import page
from tandem.serve.store import ModelStore

JSON = {"content-type": "application/json"}


class App:
    """store: the models. Any ASGI server runs it: `uvicorn.run(td.serve.App(store))`.

    GET  /                                 a page with models and numbers
    GET  /v2, /v2/health/live, /v2/health/ready, /metrics
    GET  /v2/models/NAME[/versions/V][/ready]
    POST /v2/models/NAME[/versions/V]/infer
    POST /v2/repository/models/NAME/load, /unload
    GET  /v1/models
    POST /v1/completions, /v1/chat/completions
    """

    def __init__(self, store: ModelStore):
        self.store, self.metrics, self.limits = store, store.metrics, store.limits
        self.active = 0
        self.stopping = False
        self._idle = asyncio.Event()
        self.metrics.gauge("tandem_requests_active", "Requests that are being answered.", lambda: {(): self.active})
        self.metrics.gauge("tandem_waiting", "Rows or prompts that wait.", self._waiting)
        self.metrics.gauge("tandem_cache_blocks_free", "Free blocks of caches.", self._blocks)

    # -- ASGI

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _lifespan(self, receive, send):
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                await self.close()
                return

    async def close(self):
        """Takes no more requests, and waits for those that are being answered."""
        self.stopping = True
        while self.active:
            self._idle.clear()
            await self._idle.wait()
        await self.store.close()

    async def _http(self, scope, receive, send):
        started, path = time.perf_counter(), scope["path"].rstrip("/") or "/"
        answer = _Answer(send)
        self.active += 1
        try:
            await self._guarded(scope["method"], path, scope, receive, answer)
        finally:
            self.active -= 1
            self._idle.set()
            kind = path.split("/")[1] or "page"
            self.metrics.count("tandem_requests_total", "Requests by status.", kind=kind, code=answer.status)
            took = time.perf_counter() - started
            self.metrics.observe("tandem_request_seconds", "Time to answer.", took, SECONDS, kind=kind)

    async def _guarded(self, method: str, path: str, scope, receive, answer: _Answer):
        try:
            await self._route(method, path, scope, receive, answer)
        except RequestError as error:
            await answer.error(error.status, str(error))
        except TandemError as error:
            await answer.error(400, described(error))
        except TimeoutError:
            await answer.error(504, f"there was no answer within {self.limits.timeout} s")
        except Exception:
            traceback.print_exc()
            await answer.error(500, "the server made a mistake, which its log describes")

    async def _route(self, method: str, path: str, scope, receive, answer: _Answer):
        parts = path.strip("/").split("/")
        if method == "GET" or method == "HEAD":
            await self._get(path, parts, answer)
            return
        if method != "POST":
            raise RequestError(405, f"{method} is not known here")
        if self.stopping:
            raise RequestError(503, "the server stops")
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        body = await self._body(receive, headers)
        if parts[:2] == ["v2", "models"] and parts[-1] == "infer" and len(parts) in (4, 6):
            await self._infer(parts, body, headers, answer)
        elif path in ("/v1/completions", "/v1/chat/completions"):
            await self._complete(inference.read_json(body), "chat" in path, receive, answer)
        elif parts[:3] == ["v2", "repository", "models"] and len(parts) == 5 and parts[4] in ("load", "unload"):
            await self._swap(parts[3], parts[4], inference.read_json(body or b"{}"), answer)
        else:
            raise RequestError(404, f"there is nothing at {path}")

    async def _body(self, receive, headers: dict) -> bytes:
        most = self.limits.body
        if headers.get("content-length", "0").isdigit() and int(headers.get("content-length", "0")) > most:
            raise RequestError(413, f"the body has {headers['content-length']} bytes; at most {most} are taken")
        chunks, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestError(499, "the client has gone")
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > most:
                raise RequestError(413, f"the body has more than {most} bytes")
            if not message.get("more_body"):
                return b"".join(chunks)

    # -- what is asked

    async def _get(self, path: str, parts: list[str], answer: _Answer):
        if path == "/":
            await answer.send(page(self).encode(), {"content-type": "text/html; charset=utf-8"})
        elif path == "/metrics":
            await answer.send(self.metrics.text().encode(), {"content-type": "text/plain; version=0.0.4"})
        elif path == "/v2":
            extensions = ["binary_tensor_data", "model_repository"]
            await answer.json({"name": "tandem", "version": __version__, "extensions": extensions})
        elif path == "/v2/health/live":
            await answer.json({"live": True})
        elif path == "/v2/health/ready":
            ready = not self.stopping and bool(self.store.names())
            await answer.json({"ready": ready}, 200 if ready else 503)
        elif path == "/v1/models":
            found = [{"id": n, "object": "model", "owned_by": "tandem"} for n in self.store.names()]
            await answer.json({"object": "list", "data": found})
        elif parts[:2] == ["v2", "models"] and len(parts) > 2:
            rest = parts[3:]
            version = rest[1] if rest[:1] == ["versions"] and len(rest) > 1 else None
            rest = rest[2:] if version else rest
            model = self.store.get(parts[2], version)
            if rest == ["ready"]:
                await answer.json({"name": model.name, "ready": True})
            elif not rest:
                await answer.json(inference.metadata(model, self.store.names()[model.name]))
            else:
                raise RequestError(404, f"there is nothing at {path}")
        else:
            raise RequestError(404, f"there is nothing at {path}")

    async def _infer(self, parts: list[str], body: bytes, headers: dict, answer: _Answer):
        if len(parts) == 6 and parts[3] != "versions":
            raise RequestError(404, f"there is nothing at /{'/'.join(parts)}")
        model = self.store.get(parts[2], parts[4] if len(parts) == 6 else None)
        if model.kind != "tensor":
            raise invalid(f"{model.name} is a language model: POST to /v1/completions")
        arrays, request = inference.read_request(model, body, headers.get("inference-header-content-length"))
        async with asyncio.timeout(self.limits.timeout):
            made = await model.infer(arrays)
        await answer.send(*inference.write_answer(model, made, request))

    async def _complete(self, request: dict, chat: bool, receive, answer: _Answer):
        name = request.get("model")
        model = self.store.get(name if isinstance(name, str) else "")
        if model.kind != "text":
            raise invalid(f"{model.name} is no language model: POST to /v2/models/{model.name}/infer")
        completion = Completion(model, request, self.limits, chat)
        async with asyncio.timeout(self.limits.timeout):
            if completion.stream:
                await unless_gone(receive, _send_events(completion, answer))
            else:
                await answer.json(await unless_gone(receive, completion.whole()))
        self.metrics.count("tandem_tokens_total", "Tokens made.", len(completion.tokens), model=model.name)

    async def _swap(self, name: str, verb: str, request: dict, answer: _Answer):
        parameters = inference.check_parameters(request)
        version = parameters.get("version")
        if not isinstance(version, str | None):
            raise invalid('"version" must be a text')
        if verb == "unload":
            if self.store.repository is None:
                raise RequestError(403, "this server changes no models by request; start it with --repository FOLDER")
            await self.store.unload(name, version)
        else:
            file = parameters.get("file", name)
            if not isinstance(file, str) or "\0" in file:
                raise invalid('"file" must be a name')
            await self.store.swap(name, file, version or "1")
        await answer.json({})

    # -- numbers

    def _models(self):
        return [self.store.get(n, v) for n, versions in self.store.names().items() for v in versions]

    def _waiting(self) -> dict:
        waiting = {}
        for m in self._models():
            count = m.batcher.rows if m.kind == "tensor" else len(m.engine.waiting)
            waiting[("model", m.name), ("version", m.version)] = count
        return waiting

    def _blocks(self) -> dict:
        return {(("model", m.name),): m.engine.cache.pool.free for m in self._models() if m.kind == "text"}


async def _send_events(completion: Completion, answer: _Answer):
    events = completion.events()
    async for event in events:
        if not await answer.chunk(event):
            await events.aclose()
            break
    await answer.end()


async def unless_gone(receive, work):
    """What a coroutine gives, which is cancelled when the client goes: nobody tells who only sends."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise RequestError(499, "the client has gone")
        return task.result()
    finally:
        for t in (task, gone):
            t.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnect(receive):
    if (await receive())["type"] != "http.disconnect":
        await asyncio.Event().wait()  # nothing else comes after the body


class _Answer:
    """One answer on its way out."""

    def __init__(self, send):
        self._send = send
        self.status = 0  # 0: nothing was sent yet

    async def send(self, body: bytes, headers: dict[str, str], status: int = 200):
        await self._start(status, {**headers, "content-length": str(len(body))})
        await self._send({"type": "http.response.body", "body": body})

    async def json(self, found: dict, status: int = 200, headers: dict[str, str] | None = None):
        await self.send(json.dumps(found).encode(), {**JSON, **(headers or {})}, status)

    async def error(self, status: int, text: str):
        if self.status:  # a stream has begun: it ends with the error
            await self.chunk(f"data: {json.dumps({'error': {'message': text, 'code': status}})}\n\n".encode())
            await self.end()
            return
        headers = {"retry-after": "1"} if status in (429, 503) else {}
        await self.json({"error": text}, status, headers)

    async def chunk(self, body: bytes) -> bool:
        """Part of a stream of events; False if nobody reads it."""
        if not self.status:
            await self._start(200, {"content-type": "text/event-stream", "cache-control": "no-cache"})
        try:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})
        except OSError:
            return False
        return True

    async def end(self):
        await self._send({"type": "http.response.body", "body": b""})

    async def _start(self, status: int, headers: dict[str, str]):
        self.status = status
        pairs = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})
