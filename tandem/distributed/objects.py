"""Python objects between ranks.

What crosses is JSON with a few more kinds (tuples, bytes, complex numbers, tensors), never code: what another rank sends can do no
harm here. allow_pickle=True takes any object, from ranks that are trusted.
"""

from __future__ import annotations

import base64
import json
import pickle

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.distributed.collectives import recv, send
from tandem.distributed.group import group_of
from tandem.errors import DTypeError, ShapeError
from tandem.tensors.constructors import asarray

_PLAIN = (str, int, float, bool, type(None))


def _encode(x):
    if isinstance(x, _PLAIN) and type(x) in _PLAIN:
        return x
    if type(x) is list:
        return {"list": [_encode(y) for y in x]}
    if type(x) in (tuple, set, frozenset):
        return {type(x).__name__: [_encode(y) for y in x]}
    if type(x) is dict:
        return {"dict": [[_encode(k), _encode(v)] for k, v in x.items()]}
    if type(x) in (bytes, bytearray):
        return {type(x).__name__: base64.b64encode(x).decode()}
    if type(x) is complex:
        return {"complex": [x.real, x.imag]}
    if isinstance(x, _runtime.Tensor):
        t = x.detach().contiguous()
        data = base64.b64encode(t.reshape(-1).view(dtypes.uint8).numpy().tobytes()).decode() if t.numel() else ""
        return {"tensor": [t.dtype.name, list(t.shape), data]}
    raise DTypeError(
        "all_gather_object", f"an object of type {type(x).__module__}.{type(x).__qualname__} is not sent between ranks",
        fix="send numbers, texts, bytes, lists, tuples, sets, dicts and tensors; or say allow_pickle=True if you trust all ranks",
    )  # fmt: skip


def _tensor(name: str, shape: list, data: str):
    dtype = next(d for d in dtypes.ALL if d.name == name)
    if not data:
        return F.full(tuple(shape), 0, dtype=dtype)
    return F.frombuffer(bytearray(base64.b64decode(data)), dtype=dtype).reshape(shape)


_DECODERS = {
    "list": lambda x: [_decode(y) for y in x],
    "tuple": lambda x: tuple(_decode(y) for y in x),
    "set": lambda x: {_decode(y) for y in x},
    "frozenset": lambda x: frozenset(_decode(y) for y in x),
    "dict": lambda x: {_decode(k): _decode(v) for k, v in x},
    "bytes": base64.b64decode,
    "bytearray": lambda x: bytearray(base64.b64decode(x)),
    "complex": lambda x: complex(*x),
    "tensor": lambda x: _tensor(*x),
}


def _decode(x):
    if not isinstance(x, dict):
        return x
    ((kind, content),) = x.items()
    return _DECODERS[kind](content)


def _pack(x, allow_pickle: bool):
    data = pickle.dumps(x) if allow_pickle else json.dumps(_encode(x)).encode()
    return F.frombuffer(bytearray(data), dtype=dtypes.uint8)


def _unpack(data, allow_pickle: bool):
    content = data.numpy().tobytes()
    return pickle.loads(content) if allow_pickle else _decode(json.loads(content))


def _gather(obj, group, allow_pickle: bool) -> list:
    data = _pack(obj, allow_pickle)
    sizes = F.all_gather(asarray([data.numel()], dtype=dtypes.int64), group.token, group.size()).tolist()
    every = F.all_gather(data, group.token, group.size(), tuple(sizes))
    made, at = [], 0
    for n in sizes:
        made.append(_unpack(every[at : at + n], allow_pickle))
        at += n
    return made


def all_gather_object(object_list: list, obj, group=None, *, allow_pickle: bool = False):
    """Writes the objects of all ranks into a list of as many entries.

    >>> td.distributed.init_process_group()
    >>> every = [None]
    >>> td.distributed.all_gather_object(every, {"loss": 0.5})
    >>> every
    [{'loss': 0.5}]
    >>> td.distributed.destroy_process_group()
    """
    group = group_of(group, "all_gather_object")
    if group is None:
        return
    if len(object_list) != group.size():
        raise ShapeError("all_gather_object", f"a list of {len(object_list)} entries for {group.size()} ranks")
    object_list[:] = _gather(obj, group, allow_pickle)


def gather_object(obj, object_gather_list: list | None = None, dst: int = 0, group=None, *, allow_pickle: bool = False):
    """Writes the objects of all ranks into a list that rank `dst` gives."""
    group = group_of(group, "gather_object")
    if group is None:
        return
    made = _gather(obj, group, allow_pickle)
    if group.rank() == group.position(dst, "gather_object"):
        object_gather_list[:] = made


def broadcast_object_list(object_list: list, src: int = 0, group=None, device=None, *, allow_pickle: bool = False):
    """Gives all ranks the objects of rank `src`, in place; lists have the same length on all ranks."""
    group = group_of(group, "broadcast_object_list")
    if group is None:
        return
    root = group.position(src, "broadcast_object_list")
    mine = group.rank() == root
    data = _pack(list(object_list), allow_pickle) if mine else F.full((0,), 0, dtype=dtypes.uint8)
    size = F.broadcast(asarray([data.numel()], dtype=dtypes.int64), group.token, group.size(), root).tolist()[0]
    data = F.broadcast(data if mine else F.full((size,), 0, dtype=dtypes.uint8), group.token, group.size(), root)
    made = _unpack(data, allow_pickle)
    if len(made) != len(object_list):
        raise ShapeError(
            "broadcast_object_list", f"a list of {len(object_list)} entries for {len(made)} from rank {src}"
        )
    object_list[:] = made


def scatter_object_list(
    scatter_object_output_list: list, scatter_object_input_list: list | None = None, src: int = 0, group=None, *,
    allow_pickle: bool = False,
):  # fmt: skip
    """Gives each rank, as the first entry of a list, the object that rank `src` has for it."""
    group = group_of(group, "scatter_object_list")
    if group is None:
        return
    root, n = group.position(src, "scatter_object_list"), group.size()
    mine = group.rank() == root
    if not scatter_object_output_list or (mine and len(scatter_object_input_list or ()) != n):
        raise ShapeError(
            "scatter_object_list", f"rank {src} gives a list of {n} objects, and every rank one of an entry for its own"
        )
    parts = [_pack(x, allow_pickle) for x in scatter_object_input_list] if mine else []
    sizes = tuple(p.numel() for p in parts) if mine else (0,) * n
    lengths = asarray(sizes, dtype=dtypes.int64)
    lengths = F.broadcast(lengths, group.token, n, root).tolist()
    sent = F.concatenate(parts) if mine else F.full((0,), 0, dtype=dtypes.uint8)
    takes = tuple(lengths[group.rank()] if r == root else 0 for r in range(n))
    got = F.all_to_all(sent, group.token, n, sizes, takes)
    scatter_object_output_list[0] = _unpack(got, allow_pickle)


def send_object_list(object_list: list, dst: int, group=None, device=None, *, allow_pickle: bool = False):
    """Sends objects to rank `dst`, which receives them by recv_object_list."""
    data = _pack(list(object_list), allow_pickle)
    send(asarray([data.numel()], dtype=dtypes.int64), dst, group)
    send(data, dst, group)


def recv_object_list(object_list: list, src: int, group=None, device=None, *, allow_pickle: bool = False) -> int:
    """Writes what rank `src` sends by send_object_list into a list of as many entries; gives that rank."""
    size = F.full((1,), 0, dtype=dtypes.int64)
    recv(size, src, group)
    data = F.full((size.tolist()[0],), 0, dtype=dtypes.uint8)
    recv(data, src, group)
    made = _unpack(data, allow_pickle)
    if len(made) != len(object_list):
        raise ShapeError("recv_object_list", f"a list of {len(object_list)} entries for {len(made)} from rank {src}")
    object_list[:] = made
    return src
