"""tandem serve: the application on uvicorn."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from tandem.serve.app import App
from tandem.serve.store import Limits, ModelStore


def add_arguments(parser: argparse.ArgumentParser):
    parser.add_argument("models", nargs="*", metavar="[NAME[@VERSION]=]PATH",
                        help="files of td.export.save, GGUF files, folders with config.json and safetensors")  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0: one that is free, which is printed")
    parser.add_argument("--repository", help="a folder from which models may be loaded by request")
    parser.add_argument("--batch", type=int, default=32, help="most rows of a batch")
    parser.add_argument(
        "--latency", type=float, default=2.0, help="milliseconds that a request waits for others to join its batch"
    )
    parser.add_argument(
        "--queue", type=int, default=1024, help="rows or prompts that may wait; more are refused with status 429"
    )
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds for an answer")
    parser.add_argument("--sequences", type=int, default=16, help="prompts that a language model works on at a time")
    parser.add_argument("--blocks", type=int, help="blocks of 16 tokens of a language model's cache")


def store_of(options) -> ModelStore:
    limits = Limits(
        most=options.batch, budget=options.latency / 1000, waiting=options.queue, timeout=options.timeout, rows=options.sequences,
        blocks=options.blocks,
    )  # fmt: skip
    store = ModelStore(limits, repository=options.repository)
    for given in options.models:
        name, _, path = given.rpartition("=")
        name, _, version = (name or Path(path).stem).partition("@")
        store.load(name, path, version or "1")
        print(f"tandem serve: {name}, version {version or '1'}, is ready")
    return store


def run(options) -> int:
    try:
        import uvicorn
    except ImportError:
        raise ImportError("uvicorn is not installed\n  fix: pip install 'tandem-dl[serve]'") from None
    if not options.models and not options.repository:
        raise ValueError("there is nothing to serve\n  fix: name a model, or --repository FOLDER")
    app = App(store_of(options))
    config = uvicorn.Config(
        app, host=options.host, port=options.port, log_level="warning", timeout_graceful_shutdown=30
    )
    listening = config.bind_socket()
    host = f"[{options.host}]" if ":" in options.host else options.host
    print(f"tandem serve: http://{host}:{listening.getsockname()[1]}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):  # by which it has ended already
        uvicorn.Server(config).run(sockets=[listening])
    return 0
