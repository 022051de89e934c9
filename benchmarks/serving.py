"""Requests a second over HTTP at equal latency: `tandem serve` and a plain FastAPI server with PyTorch, a process each, in turns.

python benchmarks/serving.py                    needs fastapi and torch beside what tandem serve needs, or --peer
python benchmarks/serving.py --overhead         processor time of a request in a batch of 64, without sockets, next to no model

The model is a perceptron of 256 inputs, two layers of 1024 and 10 results, and a request is one row as JSON. Clients keep their
connections and ask again as soon as they are answered. More and more of them ask; what counts is the largest rate whose slowest
hundredth stays within the bound. The plain server answers a request with a call of the model, as such servers are written; ours
makes batches.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

WIDTH, HIDDEN = 256, 1024
BAR = 2.0
OVERHEAD = 300e-6  # seconds of a request, on one core

PLAIN = """
import sys
import fastapi, pydantic, torch, uvicorn

torch.set_num_threads(2)
width, hidden = map(int, sys.argv[2:])
layers = [torch.nn.Linear(width, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, hidden), torch.nn.ReLU()]
model = torch.nn.Sequential(*layers, torch.nn.Linear(hidden, 10)).eval()
app = fastapi.FastAPI()

class Request(pydantic.BaseModel):
    data: list[float]

@app.get("/v2/health/ready")
def ready():
    return {}

@app.post("/infer")
def infer(request: Request):
    with torch.inference_mode():
        return {"scores": model(torch.tensor([request.data]))[0].tolist()}

uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False)
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(kind: str, folder: str, peer: str) -> tuple[subprocess.Popen, int]:
    port = free_port()
    if kind == "tandem":
        import tandem as td

        nn = td.nn
        model = nn.Sequential(
            nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10)
        )
        td.export.save(
            model.eval(), td.ones(2, WIDTH), f"{folder}/mlp.model", input_names=["x"], output_names=["scores"]
        )
        command = [
            sys.executable,
            "-m",
            "tandem",
            "serve",
            f"mlp={folder}/mlp.model",
            "--port",
            str(port),
            "--queue",
            "4096",
        ]
    else:
        command = [peer, "-c", PLAIN, str(port), str(WIDTH), str(HIDDEN)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5).read()
            return process, port
        except OSError:
            if process.poll() is not None:
                raise SystemExit(process.stderr.read().decode()[-2000:]) from None
            time.sleep(0.1)
    raise SystemExit(f"{kind} does not begin")


def request_of(kind: str) -> bytes:
    row = [round(0.001 * i, 3) for i in range(WIDTH)]
    if kind == "tandem":
        path, body = (
            "/v2/models/mlp/infer",
            {"inputs": [{"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "data": row}]},
        )
    else:
        path, body = "/infer", {"data": row}
    text = json.dumps(body)
    head = f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: {len(text)}"
    return f"{head}\r\n\r\n{text}".encode()


async def client(port: int, request: bytes, end: float, taken: list[float]):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (started := time.perf_counter()) < end:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(head.decode())
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(length)
        taken.append(time.perf_counter() - started)
    writer.close()


def load(port: int, kind: str, clients: int, seconds: float) -> tuple[float, float]:
    """Requests a second, and the time within which 99 of 100 were answered."""
    taken: list[float] = []

    async def run():
        end = time.perf_counter() + seconds
        await asyncio.gather(*(client(port, request_of(kind), end, taken) for _ in range(clients)))

    asyncio.run(run())
    return len(taken) / seconds, sorted(taken)[int(0.99 * len(taken))]


def overhead() -> float:
    """Seconds of processor time for a request among 64 that are batched: JSON in and out, queue, batch, metrics."""
    import tandem as td

    td.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        td.export.save(td.nn.Linear(16, 4).eval(), td.ones(2, 16), f"{folder}/m", input_names=["x"], output_names=["y"])
        store = td.serve.ModelStore(td.serve.Limits(most=64, budget=0.005))
        store.load("m", f"{folder}/m")
    row = {"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [0.5] * 16}
    message = {"type": "http.request", "body": json.dumps({"inputs": [row]}).encode(), "more_body": False}
    scope = {"type": "http", "method": "POST", "path": "/v2/models/m/infer", "headers": []}
    app = td.serve.App(store)

    async def receive():
        return message

    async def send(part):
        if part.get("status", 200) != 200:
            raise SystemExit(f"status {part['status']}")

    async def run() -> float:
        best = float("inf")
        for _ in range(50):
            started = time.process_time()
            await asyncio.gather(*(app(scope, receive, send) for _ in range(64)))
            best = min(best, (time.process_time() - started) / 64)
        return best

    return asyncio.run(run())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument(
        "--bound", type=float, default=0.05, help="seconds within which 99 of 100 requests must be answered"
    )
    parser.add_argument(
        "--peer", default=sys.executable, metavar="PYTHON", help="an interpreter that has fastapi and torch"
    )
    parser.add_argument("--overhead", action="store_true")
    options = parser.parse_args()
    if options.overhead:
        spent = overhead()
        print(f"{spent * 1e6:.0f} us of a request{'' if spent <= OVERHEAD else '  missed'}; bar {OVERHEAD * 1e6:.0f}")
        return
    best = {"tandem": 0.0, "fastapi": 0.0}
    with tempfile.TemporaryDirectory() as folder:
        for clients in (4, 16, 64, 128):
            for kind in best:
                process, port = start(kind, folder, options.peer)
                try:
                    load(port, kind, 4, 0.5)
                    rate, slowest = load(port, kind, clients, options.seconds)
                finally:
                    process.kill()
                    process.wait()
                print(f"{clients:4} clients, {kind:8} {rate:7.0f} requests/s, p99 {slowest * 1e3:6.1f} ms", flush=True)
                if slowest <= options.bound:
                    best[kind] = max(best[kind], rate)
    ratio = best["tandem"] / max(best["fastapi"], 1e-9)
    rates = f"tandem {best['tandem']:.0f}, fastapi {best['fastapi']:.0f} requests/s"
    missed = "" if ratio >= BAR else "  missed"
    print(
        f"p99 within {options.bound * 1e3:.0f} ms: {rates}; {ratio:.1f}x{missed} ({os.cpu_count()} processors, clients included)"
    )


if __name__ == "__main__":
    main()
