"""Checkpoints of many ranks: each writes its parts, and any other number of ranks reads them.

    folder/index.json            which rows of which tensor are in which file; the checkpoint is what this names
    folder/save-<name>/rank-00000.safetensors, ...

A save writes a folder of its own and then replaces the index, so that a checkpoint is there as a whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from typing import NamedTuple

from tandem import _runtime, dtypes, files
from tandem.autograd.modes import no_grad
from tandem.checkpoint import open as open_file
from tandem.checkpoint import save as save_file
from tandem.distributed.collectives import barrier
from tandem.distributed.fully_shard import Division
from tandem.distributed.group import this_rank
from tandem.distributed.objects import broadcast_object_list
from tandem.errors import CheckpointError
from tandem.nn.module import Module
from tandem.ops import concatenate

_VERSION = 1


class _Tensor(NamedTuple):
    tensor: object  # this rank's
    division: Division | None  # None: all ranks have the same

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape) if self.division is None else self.division.shape

    @property
    def rows(self) -> tuple[int, int]:
        """Those of this rank."""
        if self.division is None:
            return 0, self.shape[0] if self.shape else 1
        return self.division.start, self.division.start + self.tensor.shape[0]


def _tensors(model: Module, optimizer) -> tuple[dict[str, _Tensor], dict[str, object]]:
    """What a checkpoint holds: tensors by name, and plain values of the optimiser's state."""
    named = dict(model.named_parameters(remove_duplicate=False))
    found = {
        f"model/{name}": _Tensor(t.detach(), getattr(named.get(name), "division", None))
        for name, t in model.state_dict().items()
    }
    values: dict[str, object] = {}
    if optimizer is not None:
        for name, p in model.named_parameters():
            for key, value in optimizer.state.get(p, {}).items():
                if isinstance(value, _runtime.Tensor):
                    divided = getattr(p, "division", None) if value.shape == p.shape else None
                    found[f"optimizer/{name}/{key}"] = _Tensor(value.detach(), divided)
                elif value is not None:
                    values[f"{name}/{key}"] = value
    return found, values


def _settings(optimizer) -> list[dict]:
    plain = (bool, int, float, str, type(None), tuple, list)
    return [{k: v for k, v in g.items() if k != "params" and isinstance(v, plain)} for g in optimizer.param_groups]


def save(folder: str, model: Module, optimizer=None, extra=None):
    """Writes a model, whole, data parallel or fully sharded, its optimiser, and `extra`, which is JSON. All ranks must call it."""
    rank = this_rank("checkpoint.save")
    name = [f"save-{uuid.uuid4().hex[:12]}"]
    broadcast_object_list(name, 0)
    target = os.path.join(folder, name[0])
    os.makedirs(target, exist_ok=True)
    tensors, values = _tensors(model, optimizer)
    mine = {k: t.tensor for k, t in tensors.items() if t.tensor.numel() and (t.division is not None or rank.rank == 0)}
    save_file(mine, os.path.join(target, _file(rank.rank)))
    barrier()
    if rank.rank == 0:
        index = {
            "version": _VERSION, "folder": name[0], "extra": extra, "values": values,
            "settings": None if optimizer is None else _settings(optimizer),
            "tensors": {k: {"shape": t.shape, "dtype": t.tensor.dtype.name, "parts": _parts(t)} for k, t in tensors.items()},
        }  # fmt: skip
        _replace_index(folder, index)
    barrier()


def _parts(t: _Tensor) -> list[list[int]]:
    """[rank, first row, last row] of those that wrote some."""
    if t.division is None:
        return [[0, *t.rows]]
    parts, at = [], 0
    for position, rows in enumerate(t.division.rows):
        if rows:
            parts.append([t.division.group.ranks[position], at, at + rows])
        at += rows
    return parts


def _file(rank: int) -> str:
    return f"rank-{rank:05d}.safetensors"


def _replace_index(folder: str, index: dict):
    files.write(os.path.join(folder, "index.json"), json.dumps(index))
    for other in os.listdir(folder):  # of checkpoints that are no longer named, and of saves that were cut short
        if other.startswith("save-") and other != index["folder"]:
            shutil.rmtree(os.path.join(folder, other), ignore_errors=True)


def load(folder: str, model: Module, optimizer=None):
    """Reads what `save` wrote, with this or any other number of ranks, into a model and an optimiser; gives `extra`. Each rank
    reads the rows that it has. Works without a process group, too."""
    path = os.path.join(folder, "index.json")
    try:
        with open(path) as file:
            index = json.load(file)
    except (OSError, ValueError) as error:
        raise CheckpointError("checkpoint.load", f"{path} is no checkpoint: {error}") from None
    if index.get("version") != _VERSION:
        raise CheckpointError(
            "checkpoint.load", f"{path} has version {index.get('version')}; this is version {_VERSION}"
        )
    reader = _Reader(os.path.join(folder, index["folder"]), index["tensors"])
    tensors, _ = _tensors(model, None)
    with no_grad():
        for name, t in tensors.items():
            t.tensor.copy_(reader.rows(name, t))
        if optimizer is not None:
            _load_optimizer(reader, index, model, optimizer)
    return index["extra"]


def _load_optimizer(reader: _Reader, index: dict, model: Module, optimizer):
    for name, p in model.named_parameters():
        state = {}
        for full in index["tensors"]:
            start = f"optimizer/{name}/"
            if full.startswith(start) and "/" not in full[len(start) :]:
                divided = getattr(p, "division", None) if tuple(index["tensors"][full]["shape"]) == _shape(p) else None
                like = _Tensor(p.detach(), divided) if divided is not None else None
                state[full[len(start) :]] = reader.rows(full, like)
        for full, value in index["values"].items():
            if full.rpartition("/")[0] == name:
                state[full.rpartition("/")[2]] = value
        if state:
            optimizer.state[p] = state
    for group, settings in zip(optimizer.param_groups, index["settings"] or [], strict=False):
        group.update({k: tuple(v) if isinstance(group.get(k), tuple) else v for k, v in settings.items()})


def _shape(p) -> tuple[int, ...]:
    division = getattr(p, "division", None)
    return tuple(p.shape) if division is None else division.shape


class _Reader:
    def __init__(self, folder: str, tensors: dict):
        self.folder, self.tensors = folder, tensors
        self._files: dict[int, object] = {}

    def rows(self, name: str, like: _Tensor | None):
        """The rows of a tensor that `like` has, or all of it."""
        entry = self.tensors.get(name)
        if entry is None:
            raise CheckpointError(
                "checkpoint.load", f"{name} is not in {self.folder}", fix="load into the model that was saved"
            )
        shape = tuple(entry["shape"])
        if like is not None and shape != like.shape:
            raise CheckpointError(
                "checkpoint.load", f"{name} is {shape} in {self.folder} and {like.shape} in the model"
            )
        first, last = (0, shape[0] if shape else 1) if like is None else like.rows
        parts = []
        for rank, begin, end in entry["parts"]:
            a, b = max(first, begin), min(last, end)
            if a >= b:
                continue
            part = self._file(rank)[name]
            parts.append(part[a - begin : b - begin] if shape else part)
        if not parts:
            dtype = next(d for d in dtypes.ALL if d.name == entry["dtype"])
            return _runtime.empty((last - first, *shape[1:]), dtype)
        return parts[0].clone() if len(parts) == 1 else concatenate(parts)

    def _file(self, rank: int):
        if rank not in self._files:
            self._files[rank] = open_file(os.path.join(self.folder, _file(rank)))
        return self._files[rank]
