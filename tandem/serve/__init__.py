"""Models behind HTTP: an ASGI application with dynamic and continuous batching. `tandem serve MODEL` runs it on uvicorn."""

from tandem.serve.app import App
from tandem.serve.batching import Batcher
from tandem.serve.engine import Engine
from tandem.serve.errors import RequestError
from tandem.serve.store import Limits, ModelStore

__all__ = ["App", "Batcher", "Engine", "Limits", "ModelStore", "RequestError"]
