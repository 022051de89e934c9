"""Nested state, and whether two states are the same."""

import math

import numpy as np

import tandem as td
from tandem import _runtime


def same(a, b) -> bool:
    if isinstance(a, td.Tensor):
        return (
            isinstance(b, td.Tensor)
            and a.dtype is b.dtype
            and a.shape == b.shape
            and _runtime.to_bytes(a) == _runtime.to_bytes(b)
        )
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b)))


def nested():
    return {
        "model": {"w": td.randn(3, 4), "b": td.zeros(3), "t": td.randn(4, 5).T, "none": td.zeros(0, 3), "scalar": td.tensor(2.5)},
        "groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": [0, 1]}],
        "state": {0: {"step": td.tensor(3)}, 1: {}},
        "text": "naïve", "nothing": None, "yes": True, "large": 2**80, "special": [math.inf, -math.inf, math.nan, -0.0],
        "bytes": b"\x00\xff", "complex": 1 + 2j, "set": {1, 2}, "dtype": td.bfloat16, "array": np.ones((2, 3)), "$odd": 1,
    }  # fmt: skip
