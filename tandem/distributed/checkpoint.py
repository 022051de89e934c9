"""Checkpoints of many ranks: each writes its parts, and any other number of ranks reads them.

    folder/index.json            which block of which tensor is in which file; the checkpoint is what this names
    folder/save-<name>/rank-00000.safetensors, ...

A save writes a folder of its own and then replaces the index, so that a checkpoint is there as a whole or not at all. Files are
written in the background (saving.py).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import threading
import uuid
from typing import NamedTuple

from tandem import _runtime, dtypes, files
from tandem.autograd.modes import no_grad
from tandem.checkpoint import open as open_file
from tandem.checkpoint import save as save_file
from tandem.distributed.fsdp import Division
from tandem.distributed.group import this_rank
from tandem.distributed.objects import all_gather_object, broadcast_object_list
from tandem.distributed.saving import Save, restore_rank, state_of_rank
from tandem.distributed.sharding.layout import Grid, grid_of
from tandem.distributed.sharding.parts import make as make_sharded
from tandem.errors import CheckpointError
from tandem.nn.module import Module

_VERSION = 2  # 1 had rows: [rank, first row, last row]


class _Block(NamedTuple):
    """A part of a tensor: where it begins, and its shape."""

    start: tuple[int, ...]
    shape: tuple[int, ...]

    def overlap(self, other: _Block) -> _Block | None:
        """What two have in common, if anything."""
        start = tuple(max(a, b) for a, b in zip(self.start, other.start, strict=True))
        ends = zip(self.start, self.shape, other.start, other.shape, strict=True)
        shape = tuple(min(a + n, b + m) - at for at, (a, n, b, m) in zip(start, ends, strict=True))
        return _Block(start, shape) if all(n > 0 for n in shape) else None

    def within(self, other: _Block) -> tuple[slice, ...]:
        """The index of this block in another one that holds it."""
        return tuple(slice(a - b, a - b + n) for a, n, b in zip(self.start, self.shape, other.start, strict=True))


class _Tensor(NamedTuple):
    """What this rank has of a tensor, and who writes which part of it: blocks by rank."""

    tensor: object
    shape: tuple[int, ...]
    block: _Block
    writers: dict[int, _Block]


def _described(tensor, like) -> _Tensor:
    """A tensor that lies on the ranks as `like` does, where it has its shape; otherwise all ranks have the same."""
    parts = _runtime.parts_of(tensor)
    if parts is not None:
        return _of_sharded(tensor, parts)
    division = getattr(like, "division", None) if like is not None and tensor.shape == like.shape else None
    if division is not None:
        return _of_division(tensor, division)
    whole = _Block((0,) * tensor.ndim, tuple(tensor.shape))
    return _Tensor(tensor, whole.shape, whole, {0: whole})


def _of_division(tensor, division: Division) -> _Tensor:
    """Of a fully sharded parameter: rows."""
    rest, at, writers = division.shape[1:], 0, {}
    for position, rows in enumerate(division.rows):
        writers[division.group.ranks[position]] = _Block((at, *(0 for _ in rest)), (rows, *rest))
        at += rows
    block = _Block((division.start, *(0 for _ in rest)), tuple(tensor.shape))
    return _Tensor(tensor, division.shape, block, writers)


def _of_sharded(tensor, parts) -> _Tensor:
    """Of a sharded tensor: of the ranks that have the same part, the first one writes it."""
    if any(p.is_partial() for p in parts.placements):
        raise CheckpointError("checkpoint", f"a tensor is {list(parts.placements)}", fix="redistribute it first")
    shape, mesh, writers = tuple(tensor.shape), parts.mesh, {}
    for rank, coordinate in zip(mesh.ranks, itertools.product(*map(range, mesh.shape)), strict=True):
        if all(c == 0 or p.is_shard() for c, p in zip(coordinate, parts.placements, strict=True)):
            spans = Grid(mesh.shape, coordinate, ()).spans(shape, parts.placements)
            writers[rank] = _Block(tuple(a for a, _ in spans), tuple(n for _, n in spans))
    spans = grid_of(mesh).spans(shape, parts.placements)
    return _Tensor(parts.local, shape, _Block(tuple(a for a, _ in spans), tuple(n for _, n in spans)), writers)


def _tensors(model: Module, optimizer) -> tuple[dict[str, _Tensor], dict[str, object]]:
    """What a checkpoint holds: tensors by name, and plain values of the optimiser's state."""
    named = dict(model.named_parameters(remove_duplicate=False))
    found = {f"model/{name}": _described(t.detach(), named.get(name)) for name, t in model.state_dict().items()}
    values: dict[str, object] = {}
    if optimizer is not None:
        for name, p in model.named_parameters():
            for key, value in optimizer.state.get(p, {}).items():
                if isinstance(value, _runtime.Tensor):
                    found[f"optimizer/{name}/{key}"] = _described(value.detach(), p)
                elif value is not None:
                    values[f"{name}/{key}"] = value
    return found, values


def _settings(optimizer) -> list[dict]:
    plain = (bool, int, float, str, type(None), tuple, list)
    return [{k: v for k, v in g.items() if k != "params" and isinstance(v, plain)} for g in optimizer.param_groups]


def save(folder: str, model: Module, optimizer=None, extra=None, *, loader=None):
    """Writes a model, whole, data parallel, fully sharded or of sharded tensors, its optimiser, and `extra`, which is JSON;
    besides, the state of every rank's random numbers, and where every rank's `loader` is. All ranks must call it."""
    async_save(folder, model, optimizer, extra, loader=loader).wait()


_latest: dict[int, Save] = {}  # by the thread that is a rank


def async_save(folder: str, model: Module, optimizer=None, extra=None, *, loader=None) -> Save:
    """save in the background: what is to be written is copied, and training may go on at once. Gives a `Save` to wait for. The
    checkpoint before stays the one that is read until all ranks have written theirs; another save waits for this one."""
    rank = this_rank("checkpoint.save")
    if (before := _latest.pop(threading.get_ident(), None)) is not None:
        before.wait()
    name = [f"save-{uuid.uuid4().hex[:12]}"]
    broadcast_object_list(name, 0)
    states: list = [None] * rank.size
    all_gather_object(states, state_of_rank(loader))
    target = os.path.join(folder, name[0])
    os.makedirs(target, exist_ok=True)
    tensors, values = _tensors(model, optimizer)
    index = {
        "version": _VERSION, "folder": name[0], "extra": extra, "values": values, "ranks": states,
        "settings": None if optimizer is None else _settings(optimizer),
        "tensors": {k: {"shape": t.shape, "dtype": t.tensor.dtype.name, "parts": _parts(t)} for k, t in tensors.items()},
    }  # fmt: skip
    text = json.dumps(index)
    mine = {k: t.tensor.clone() for k, t in tensors.items() if t.tensor.numel() and rank.rank in t.writers}
    made = [os.path.join(target, _file(r)) for r in range(rank.size)]
    end = (lambda: _replace_index(folder, name[0], text)) if rank.rank == 0 else None
    save = Save(lambda: save_file(mine, made[rank.rank]), made, rank.rank, end, rank.timeout)
    _latest[threading.get_ident()] = save
    return save


def _parts(t: _Tensor) -> list[list]:
    """[rank, start, shape] of those that wrote some."""
    return [[rank, block.start, block.shape] for rank, block in t.writers.items() if 0 not in block.shape]


def _file(rank: int) -> str:
    return f"rank-{rank:05d}.safetensors"


def _replace_index(folder: str, name: str, index: str):
    files.write(os.path.join(folder, "index.json"), index)
    for other in os.listdir(folder):  # of checkpoints that are no longer named, and of saves that were cut short
        if other.startswith("save-") and other != name:
            shutil.rmtree(os.path.join(folder, other), ignore_errors=True)


def load(folder: str, model: Module, optimizer=None, *, loader=None, random: bool = False):
    """Reads what `save` wrote, with this or any other number of ranks, into a model and an optimiser; gives `extra`. Each rank
    reads what it has. Works without a process group, too.

    loader: goes on where the saved ones were. With another number of ranks its sampler must be a
        `td.data.DistributedSampler(pad=False)`, which divides what is left of the epoch
    random: whether random numbers go on as they would have; with another number of ranks, those of rank 0, on all
    """
    path = os.path.join(folder, "index.json")
    try:
        with open(path) as file:
            index = json.load(file)
    except (OSError, ValueError) as error:
        raise CheckpointError("checkpoint.load", f"{path} is no checkpoint: {error}") from None
    if index.get("version") not in (1, _VERSION):
        raise CheckpointError(
            "checkpoint.load", f"{path} has version {index.get('version')}; this is version {_VERSION}"
        )
    tensors, _ = _tensors(model, None)
    with no_grad(), contextlib.closing(_Reader(os.path.join(folder, index["folder"]), index["tensors"])) as reader:
        for name, t in tensors.items():
            t.tensor.copy_(reader.read(name, t.shape, t.block))
        if optimizer is not None:
            _load_optimizer(reader, index, model, optimizer)
    restore_rank(index.get("ranks"), loader, random)
    return index["extra"]


def _load_optimizer(reader: _Reader, index: dict, model: Module, optimizer):
    for name, p in model.named_parameters():
        state: dict = {}
        like = _described(p.detach(), p)
        for full in index["tensors"]:
            start = f"optimizer/{name}/"
            if full.startswith(start) and "/" not in full[len(start) :]:
                state[full[len(start) :]] = _state_tensor(reader, full, p, like)
        for full, value in index["values"].items():
            if full.rpartition("/")[0] == name:
                state[full.rpartition("/")[2]] = value
        if state:
            optimizer.state[p] = state
    for group, settings in zip(optimizer.param_groups, index["settings"] or [], strict=False):
        group.update({k: tuple(v) if isinstance(group.get(k), tuple) else v for k, v in settings.items()})


def _state_tensor(reader: _Reader, name: str, p, like: _Tensor):
    """A tensor of the optimiser's state: one of the parameter's shape lies as the parameter does."""
    shape = tuple(reader.entry(name)["shape"])
    if shape != like.shape:
        return reader.read(name, shape, _Block((0,) * len(shape), shape))
    made, parts = reader.read(name, shape, like.block), _runtime.parts_of(p)
    return made if parts is None else make_sharded(parts.mesh, parts.placements, made, shape)


class _Reader:
    def __init__(self, folder: str, tensors: dict):
        self.folder, self.tensors = folder, tensors
        self._files: dict[int, object] = {}

    def entry(self, name: str) -> dict:
        if name not in self.tensors:
            raise CheckpointError(
                "checkpoint.load", f"{name} is not in {self.folder}", fix="load into the model that was saved"
            )
        return self.tensors[name]

    def read(self, name: str, expected: tuple[int, ...], wanted: _Block):
        """A block of a tensor, put together from the parts that were written."""
        entry = self.entry(name)
        shape = tuple(entry["shape"])
        if shape != expected:
            raise CheckpointError("checkpoint.load", f"{name} is {shape} in {self.folder} and {expected} in the model")
        dtype = next(d for d in dtypes.ALL if d.name == entry["dtype"])
        made = _runtime.empty(wanted.shape, dtype)
        for rank, start, end in entry["parts"]:
            written = _Block(tuple(start), tuple(end)) if isinstance(start, list) else _rows(shape, start, end)
            common = written.overlap(wanted)
            if common is not None:
                made[common.within(wanted)] = self._file(rank)[name][common.within(written)]
        return made

    def _file(self, rank: int):
        if rank not in self._files:
            self._files[rank] = open_file(os.path.join(self.folder, _file(rank)))
        return self._files[rank]

    def close(self):
        for file in self._files.values():
            file.close()


def _rows(shape: tuple[int, ...], first: int, last: int) -> _Block:
    """A part as version 1 describes it."""
    return _Block((first, *(0 for _ in shape[1:])), (last - first, *shape[1:])) if shape else _Block((), ())
