"""Nested state <-> JSON with named tensors.

What JSON has stands for itself. Everything else is an object with one key that starts with `$`:

    {"$tensor": "model.weight"}    a tensor of the file          {"$tuple": [...]}       a tuple
    {"$dict": [[key, value]]}      a dict whose keys are not all plain text
    {"$float": "nan"}              nan, inf, -inf                {"$bytes": "base64"}    {"$complex": [re, im]}
    {"$dtype": "float32"}          {"$generator": [seed, offset]}                        {"$set": [...]}
    {"$parts": ["sparse_csr", ...]}  a sparse or nested tensor, of its parts

Reading makes these and nothing else, so a file can hold no code.
"""

from __future__ import annotations

import base64
import math
import sys

from tandem import _runtime, dtypes
from tandem.errors import CheckpointError, DTypeError
from tandem.tensors.constructors import asarray
from tandem.tensors.parts import TensorInParts, restored

Tensor, Generator = _runtime.Tensor, _runtime.Generator
VERSION = 1


def _is_numpy(value) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


class Encoder:
    """Takes state apart: `tensors` holds them by name, encode() gives the rest."""

    def __init__(self):
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[tuple, str] = {}  # by memory and geometry: what is shared is stored once
        self._open: set[int] = set()

    def encode(self, value, path: tuple = ()):
        kind = type(value)
        if value is None or kind is bool or kind is int or kind is str:
            return value
        if kind is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if isinstance(value, TensorInParts):
            name, parts = value.saved()
            return {"$parts": [name, *(self.encode(part, (*path, i)) for i, part in enumerate(parts))]}
        if isinstance(value, Tensor):
            entry = {"$tensor": self._add(value, path)}
            if value.requires_grad:
                entry["requires_grad"] = True
            return entry
        if isinstance(value, (dict, list, tuple, set, frozenset)):
            return self._encode_container(value, path)
        if isinstance(value, (bool, int, str, float)):  # of a subclass, such as an enum of ints
            return self.encode(next(base for base in (bool, int, str, float) if isinstance(value, base))(value), path)
        if _is_numpy(value):
            return self._encode_numpy(value, path)
        if kind is complex:
            return {"$complex": [self.encode(value.real), self.encode(value.imag)]}
        if isinstance(value, (bytes, bytearray)):
            return {"$bytes": base64.b64encode(value).decode()}
        if isinstance(value, dtypes.DType):
            return {"$dtype": value.name}
        if isinstance(value, Generator):
            return {"$generator": list(value.get_state())}
        fix = (
            "save x.state_dict()"
            if hasattr(value, "state_dict")
            else "save tensors, numbers, text, and lists and dicts of them"
        )
        raise DTypeError("save", f"{show_path(path)} is a {kind.__name__}, which is no tensor or plain value", fix=fix)

    def _encode_container(self, value, path):
        if id(value) in self._open:
            raise DTypeError("save", f"{show_path(path)} contains itself")
        self._open.add(id(value))
        try:
            if isinstance(value, dict):
                if all(type(key) is str and not key.startswith("$") for key in value):
                    return {key: self.encode(item, (*path, key)) for key, item in value.items()}
                pairs = [[self.encode(key, path), self.encode(item, (*path, key))] for key, item in value.items()]
                return {"$dict": pairs}
            items = [self.encode(item, (*path, i)) for i, item in enumerate(value)]
            return items if isinstance(value, list) else {"$tuple" if isinstance(value, tuple) else "$set": items}
        finally:
            self._open.discard(id(value))

    def _encode_numpy(self, value, path):
        import numpy

        if value.dtype.kind == "O" or not dtypes.is_name(value.dtype.name):
            raise DTypeError(
                "save", f"{show_path(path)} is a NumPy array of {value.dtype}, which has no counterpart here"
            )
        array = numpy.ascontiguousarray(value).reshape(value.shape)  # the first makes one axis of none
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        return {"$tensor": self._add(asarray(array), path), "numpy": True}

    def _add(self, tensor, path) -> str:
        tensor = tensor.detach().cpu()
        key = (tensor._address(), tensor.dtype, tuple(tensor.shape), tuple(tensor.strides))
        if key in self._names and tensor.numel():
            return self._names[key]
        name = base = ".".join(map(str, path)) or "tensor"
        count = 1
        while name in self.tensors or name == "__metadata__":
            count += 1
            name = f"{base}#{count}"
        self.tensors[name] = tensor
        self._names[key] = name
        return name


def show_path(path: tuple) -> str:
    return "the state" + "".join(f"[{key!r}]" for key in path)


def decode(value, tensor_of):
    """The state that was encoded; tensor_of(name) gives its tensors. Raises whatever it meets in what no Encoder made."""
    if isinstance(value, list):
        return [decode(item, tensor_of) for item in value]
    if not isinstance(value, dict):
        return value
    special = next((key for key in value if key.startswith("$")), None)
    if special is None:
        return {key: decode(item, tensor_of) for key, item in value.items()}
    if special == "$tensor":
        return _decode_tensor(value, tensor_of)
    if special not in _SPECIAL:
        raise CheckpointError(
            "load", f"the structure has {special!r}, which this version does not know", fix="update tandem"
        )
    kind, make = _SPECIAL[special]
    body = value[special]
    if not isinstance(body, kind) or len(value) > 1:
        raise ValueError(f"{special} of {str(body)[:40]!r}")
    return make(body, tensor_of)


def _decode_dict(pairs: list, tensor_of) -> dict:
    if not all(isinstance(pair, list) for pair in pairs):
        raise ValueError("$dict of what are no pairs")
    return {decode(key, tensor_of): decode(item, tensor_of) for key, item in pairs}


def _decode_float(text: str, _) -> float:
    if text not in ("nan", "inf", "-inf"):
        raise ValueError(f"$float of {text[:40]!r}")
    return float(text)


def _decode_complex(parts: list, tensor_of) -> complex:
    real, imaginary = (decode(part, tensor_of) for part in parts)
    return complex(real, imaginary)


def _decode_generator(state: list, _) -> Generator:
    generator = Generator()
    generator.set_state(tuple(state))
    return generator


def _decode_parts(body: list, tensor_of):

    name, *parts = (decode(part, tensor_of) for part in body)
    if name not in restored:
        raise CheckpointError("load", f"the file has a tensor of kind {name!r}", fix="update tandem")
    return restored[name](*parts)


_SPECIAL = {  # what is allowed after the key, and what it makes
    "$tuple": (list, lambda items, tensor_of: tuple(decode(item, tensor_of) for item in items)),
    "$set": (list, lambda items, tensor_of: {decode(item, tensor_of) for item in items}),
    "$dict": (list, _decode_dict),
    "$float": (str, _decode_float),
    "$complex": (list, _decode_complex),
    "$bytes": (str, lambda text, _: base64.b64decode(text, validate=True)),
    "$dtype": (str, lambda name, _: dtypes.by_name(name)),
    "$generator": (list, _decode_generator),
    "$parts": (list, _decode_parts),
}


def _decode_tensor(value, tensor_of):
    tensor = tensor_of(value["$tensor"])
    if value.get("numpy"):
        array = tensor.numpy()
        return array if array.ndim else array[()]
    if value.get("requires_grad") and not tensor.requires_grad:
        tensor.requires_grad = True
    return tensor
