"""No arguments from Python may crash the interpreter: every operator gives a result or an error of ours."""

import random
import zlib

import numpy as np
import pytest

import tandem as td
from tandem.ops.define import FUNCTIONS

# What a call may raise: errors that name the operator, and Python's own for arguments of the wrong kind.
ALLOWED = (td.TandemError, TypeError, ValueError, IndexError, OverflowError, MemoryError)
SHAPES = [(), (1,), (0,), (3,), (2, 3), (3, 3), (1, 3), (2, 0), (2, 1, 3), (2, 3, 4), (1, 1, 1, 1), (2, 3, 2, 2)]
DTYPES = ["bool", "int8", "int64", "uint8", "uint64", "float16", "bfloat16", "float32", "float64"]
INTS = [0, 1, 2, 3, -1, -2, 7, -100, 2**45, -(2**63), 2**62]
STATIC = [None, 0, 1, -1, 2, -5, (0, 1), (), (1,), True, False, "sum", "mean", 0.5, float("nan"), "float64", [0], {}]
CALLS = 6  # per function; each new signature costs a compilation


def tensor(rng):
    shape, dtype = rng.choice(SHAPES), rng.choice(DTYPES)
    values = np.asarray(rng.choice([0, 1, -1, 5])) + np.arange(int(np.prod(shape))).reshape(shape) % 3
    x = td.tensor(values).to(dtype)
    choice = rng.random()
    if choice < 0.2 and x.ndim > 1:
        x = x.transpose(0, 1)
    elif choice < 0.3 and x.ndim:
        x = td.from_numpy(x.numpy()[..., ::-1])
    elif choice < 0.4 and x.dtype.is_floating:
        x = x.clone().requires_grad_()
    return x


def argument(rng, parameter):
    kind, name = parameter.kind, parameter.name
    if kind in ("tensor", "optional_tensor"):
        if kind == "optional_tensor" and rng.random() < 0.4:
            return None
        return rng.choice([2, -1.5, True, 2**40]) if rng.random() < 0.15 else tensor(rng)
    if kind == "tensors":
        return [tensor(rng) for _ in range(rng.randint(0, 3))]
    if kind == "int":
        return rng.choice(INTS)
    if kind == "ints":
        return rng.choice([rng.choice(INTS), tuple(rng.choice(INTS) for _ in range(rng.randint(0, 4)))])
    if kind == "generator":
        return None
    if name == "dtype":
        return rng.choice([None, *DTYPES])
    if name in ("keepdims", "descending", "largest"):
        return rng.choice([True, False])
    if name in ("axis", "axes", "dim") and rng.random() < 0.7:
        return rng.choice([None, 0, 1, -1, 2, (0, 1), (0, -1)])
    return rng.choice(STATIC)


def operators():
    return sorted(name for name, f in FUNCTIONS.items() if hasattr(f, "parameters"))


@pytest.mark.parametrize("name", operators())
def test_odd_arguments(name):
    function = FUNCTIONS[name]
    rng = random.Random(zlib.crc32(name.encode()))
    for _ in range(CALLS):
        given = {}
        for p in function.parameters:
            if p.required or rng.random() < 0.4:
                given[p.name] = argument(rng, p)
        try:
            results = function(**given)
        except td.InternalError:
            raise
        except ALLOWED:
            continue
        for r in results if isinstance(results, (tuple, list)) else (results,):
            if isinstance(r, td.Tensor):
                if r.size < 1e6:  # a view may be larger than memory
                    assert r.tolist() is not None  # reads all of it
                if r.requires_grad and r.ndim == 0:
                    r.backward(retain_graph=True)
