"""Models by name and version: loaded and warmed up before they take requests, drained before they go."""

from __future__ import annotations

import asyncio
import functools
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tandem as td
from tandem import dtypes
from tandem.errors import TandemError, warn
from tandem.graph.symbolic import Sym
from tandem.serve.batching import Batcher
from tandem.serve.engine import Engine
from tandem.serve.errors import RequestError, described, invalid
from tandem.serve.metrics import ROWS, Metrics
from tandem.serve.rows import dependence


@dataclass(frozen=True)
class Limits:
    """most: rows of a batch; budget: seconds that a request waits for others; waiting: rows or prompts that may wait;
    timeout: seconds for an answer; body: bytes of a request; rows, blocks: of a language model's batch and cache; count: tokens."""

    most: int = 32
    budget: float = 0.002
    waiting: int = 1024
    timeout: float = 30.0
    body: int = 64 << 20
    rows: int = 16
    blocks: int | None = None
    count: int = 1024


class TensorModel:
    """A saved model (td.export.save) or any module of tensors that says its inputs and outputs."""

    kind = "tensor"

    def __init__(self, name: str, version: str, model, limits: Limits, metrics: Metrics):
        self.name, self.version, self.model = name, version, model
        values = model.graph.inputs[: len(model.input_names)]
        self.inputs = {n: (v.dtype, _shape(v)) for n, v in zip(model.input_names, values, strict=True)}
        self.outputs = {n: (v.dtype, _shape(v)) for n, v in zip(model.output_names, model.graph.outputs, strict=True)}
        first = {str(v.shape[0]) if v.shape else "" for v in (*values, *model.graph.outputs)}
        self.batches = len(first) == 1 and all(v.shape and isinstance(v.shape[0], Sym) for v in values)
        self.batcher = Batcher(
            self._run, limits.most if self.batches else 1, limits.budget if self.batches else 0.0, limits.waiting,
            lambda rows: metrics.observe("tandem_batch_rows", "Rows of a batch.", rows, ROWS, model=name),
        )  # fmt: skip

    def _run(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        with td.no_grad():
            results = self.model(**{n: td.from_numpy(np.ascontiguousarray(a)) for n, a in arrays.items()})
        flat, _ = td.tree.flatten(results)
        return {n: t.numpy() for n, t in zip(self.outputs, flat, strict=True)}

    def warm_up(self):
        """Runs once, so that no request waits for a compiler. What is given may be nothing that the model takes: then it runs on
        other numbers and sizes, and at last not at all."""
        failure = None
        for fill, free in ((0, 2), (1, 16), (1, 128)):
            try:
                for rows in (1, 2) if self.batches else (free,):
                    self._run({n: self._array(n, fill, rows, free) for n in self.inputs})
            except TandemError as error:
                failure = error
            else:
                self._check_rows(free)
                return
        warn(f"serve: {self.name} could not be warmed up, so that its first request waits for a compiler\n  why: {failure}",
             UserWarning)  # fmt: skip

    def _array(self, name: str, fill, rows: int, free: int) -> np.ndarray:
        dtype, shape = self.inputs[name]
        return np.full([(rows, free)[a > 0] if d < 0 else d for a, d in enumerate(shape)], fill, dtype.numpy)

    def _check_rows(self, free: int):
        """Requests stay apart where rows turn out to depend on one another."""
        if self.batcher.most == 1:
            return
        rng = np.random.default_rng(0)
        draws = [functools.partial(self._drawn, rng, real, free) for real in (rng.standard_normal, rng.random)]
        try:
            found = dependence(self._run, draws)
        except TandemError:  # random numbers are nothing that it takes
            return
        if found:
            self.batcher.most, self.batcher.budget = 1, 0.0
            warn(f"serve: requests for {self.name} are not joined into batches: {found}\n  fix: save the model in evaluation mode, "
                 "or with sizes that stay the same in place of a free batch", UserWarning)  # fmt: skip

    def _drawn(self, rng, real, free: int) -> dict[str, np.ndarray]:
        shapes = {n: self._array(n, 0, 1, free).shape for n in self.inputs}
        return {
            n: np.asarray(real(s) if self.inputs[n][0].is_floating else rng.integers(0, 2, s), self.inputs[n][0].numpy)
            for n, s in shapes.items()
        }

    async def infer(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return await self.batcher.submit(arrays)

    async def close(self):
        await self.batcher.close()


class TextModel:
    """A language model; tokenizer: with encode(text) and decode(tokens), or None where prompts are tokens."""

    kind = "text"
    inputs: dict = {}
    outputs: dict = {}

    def __init__(self, name: str, version: str, model, limits: Limits, tokenizer=None, stops=frozenset()):
        self.name, self.version, self.model = name, version, model
        self.engine = Engine(model, limits.rows, limits.blocks, limit=limits.waiting)
        self.tokenizer, self.stops = tokenizer, frozenset(stops)

    def warm_up(self):
        self.model.generate([[0, 0]], 3, temperature=0, cache="paged")

    async def close(self):
        await asyncio.get_running_loop().run_in_executor(None, self.engine.close)


def _shape(value) -> tuple[int, ...]:
    return tuple(-1 if isinstance(d, Sym) else int(d) for d in value.shape)


class ModelStore:
    """name -> version -> model. The version that was loaded last answers those who name none."""

    def __init__(self, limits: Limits | None = None, metrics: Metrics | None = None, repository=None):
        self.limits, self.metrics = limits or Limits(), metrics or Metrics()
        self.repository = (
            None if repository is None else Path(repository).resolve()
        )  # where models may be loaded from by request
        self._models: dict[str, dict[str, TensorModel | TextModel]] = {}
        self._swapping = asyncio.Lock()  # what two swaps at once replace would be drained twice, or never
        self.started = time.time()

    def names(self) -> dict[str, list[str]]:
        return {name: list(versions) for name, versions in self._models.items()}

    def get(self, name: str, version: str | None = None):
        versions = self._models.get(name)
        if not versions:
            raise RequestError(404, f"there is no model {name!r}; models are {sorted(self._models)}")
        if version is None:
            return versions[next(reversed(versions))]
        if version not in versions:
            raise RequestError(404, f"model {name!r} has no version {version!r}; versions are {list(versions)}")
        return versions[version]

    def add(self, name: str, model, version: str = "1", tokenizer=None, stops=frozenset()):
        """Serves a model that is here: a td.export.SavedModel, or a language model."""
        if hasattr(model, "cache_sizes"):
            made = TextModel(name, version, model.eval(), self.limits, tokenizer, stops)
        else:
            made = TensorModel(name, version, model, self.limits, self.metrics)
        made.warm_up()
        others = {v: m for v, m in self._models.get(name, {}).items() if v != version}
        self._models[name] = {**others, version: made}  # at once: requests are answered while a thread loads
        return made

    def load(self, name: str, path, version: str = "1"):
        """Serves a file of td.export.save, or a language model: a GGUF file, or a folder with config.json and safetensors."""
        path = Path(path)
        if path.is_dir() or path.suffix == ".gguf":
            return self.add(name, td.models.Llama.from_pretrained(path), version, *_texts(path))
        return self.add(name, td.export.load(path, freeze=True), version)

    async def swap(self, name: str, file: str, version: str):
        """Loads a model of the repository while others answer; it answers once it is warm, and one that it replaces is drained."""
        if self.repository is None:
            raise RequestError(403, "this server loads no models by request; start it with --repository FOLDER")
        path = self._found(file)
        async with self._swapping:
            old = self._models.get(name, {}).get(version)
            try:
                await asyncio.get_running_loop().run_in_executor(None, self.load, name, path, version)
            except (TandemError, OSError) as error:
                text = described(error).replace(str(path), repr(file)).replace(str(self.repository), "the repository")
                raise invalid(f"{file!r} could not be loaded: {text}") from None
        if old is not None:
            await old.close()

    def _found(self, file: str) -> Path:
        """The path of a model of the repository."""
        try:
            path = (self.repository / file).resolve()
            if path.is_relative_to(self.repository) and path.exists():
                return path
        except OSError:  # a name that is too long, or links in a circle
            pass
        raise invalid(f"{file[:100]!r} is no model of the repository")

    async def unload(self, name: str, version: str | None = None):
        async with self._swapping:
            everything = list(self._models.get(name, {}).values())
            going = [self.get(name, version)] if version or not everything else everything
            left = {m.version: m for m in everything if m not in going}
            if left:
                self._models[name] = left
            else:
                del self._models[name]
        for found in going:
            await found.close()

    async def close(self):
        async with self._swapping:
            for model in [m for versions in self._models.values() for m in versions.values()]:
                await model.close()


def _texts(path: Path):
    """(tokenizer, stop tokens) of a folder, as far as it has them."""
    tokenizer, stops = None, frozenset()
    if (path / "tokenizer.json").exists():
        try:
            from tokenizers import Tokenizer  # an extra: tandem-dl[data]
        except ImportError:
            raise RequestError(
                500, "tokenizer.json needs the package tokenizers\n  fix: pip install 'tandem-dl[data]'"
            ) from None

        tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    if (path / "config.json").exists():
        end = json.loads((path / "config.json").read_text()).get("eos_token_id")
        stops = frozenset(() if end is None else end if isinstance(end, list) else (end,))
    return tokenizer, stops


TYPES = {  # of the Open Inference Protocol
    "BOOL": dtypes.bool_, "UINT8": dtypes.uint8, "UINT16": dtypes.uint16, "UINT32": dtypes.uint32, "UINT64": dtypes.uint64,
    "INT8": dtypes.int8, "INT16": dtypes.int16, "INT32": dtypes.int32, "INT64": dtypes.int64, "FP16": dtypes.float16,
    "BF16": dtypes.bfloat16, "FP32": dtypes.float32, "FP64": dtypes.float64,
}  # fmt: skip
