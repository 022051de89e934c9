"""Random programs run four ways: by NumPy, eagerly, compiled and in a session. The results must be the same; the gradients too.

A program is a list of steps, chosen while NumPy runs it, so that every step fits what it is applied to. Floats go through
continuous functions only, and what decides (comparisons, positions, masks) is made of integers: rounding must not change what a
program does. Steps write in place too, into whole tensors and through views.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np

import tandem as td

SHAPES = [(), (3,), (1, 3), (2, 3), (3, 2), (2, 1, 3), (0, 3), (4,), (2, 2, 3)]
FLOATS, INTS = ("float32", "float64"), ("int32", "int64", "uint8")
TOLERANCE = {"float32": 5e-3, "float64": 1e-8}  # numbers are below 1000, and differences lose digits
LARGEST = 1e3


class Step(NamedTuple):
    name: str
    operands: tuple[int, ...]  # positions among the values
    given: tuple  # numbers, shapes, axes


# -- what steps do: for NumPy arrays and tensors alike, but for these names


class _NumPy:
    tanh, exp, sqrt, sin, abs, maximum, minimum, where, flip, roll = (
        np.tanh, np.exp, np.sqrt, np.sin, np.abs, np.maximum, np.minimum, np.where, np.flip, np.roll,
    )  # fmt: skip
    concat, stack, broadcast_to, any, all, argmax, cumsum = (
        np.concatenate, np.stack, np.broadcast_to, np.any, np.all, np.argmax, np.cumsum,
    )  # fmt: skip
    amax, amin, mean, sum, equal = np.max, np.min, np.mean, np.sum, np.equal

    @staticmethod
    def permute(x, axes):
        return np.transpose(x, axes)

    @staticmethod
    def cast(x, dtype):
        return x.astype(dtype)

    @staticmethod
    def copy(x):
        return np.array(x)


class _Tandem:
    tanh, exp, sqrt, sin, abs, maximum, minimum, where, flip, roll = (
        td.tanh, td.exp, td.sqrt, td.sin, td.abs, td.maximum, td.minimum, td.where, td.flip, td.roll,
    )  # fmt: skip
    concat, stack, broadcast_to, any, all, argmax, cumsum = (
        td.concat, td.stack, td.broadcast_to, td.any, td.all, td.argmax, td.cumsum,
    )  # fmt: skip
    amax, amin, mean, sum, equal = td.amax, td.amin, td.mean, td.sum, td.equal

    @staticmethod
    def permute(x, axes):
        return td.permute(x, axes)

    @staticmethod
    def cast(x, dtype):
        return x.to(getattr(td, dtype))

    @staticmethod
    def copy(x):
        return x.clone()


def _write(xp, x, key, y):
    made = xp.copy(x)
    made[key] = y
    return made


def _write_view(xp, x, key, factor):
    made = xp.copy(x)
    view = made[key]
    view *= factor
    return made


def _add_into(xp, x, y):
    made = xp.copy(x)
    made += y
    return made


RUN = {
    "tanh": lambda xp, x: xp.tanh(x),
    "exp": lambda xp, x: xp.exp(xp.tanh(x)),
    "sqrt": lambda xp, x: xp.sqrt(xp.abs(x) + 1),
    "sin": lambda xp, x: xp.sin(x),
    "abs": lambda xp, x: xp.abs(x),
    "negate": lambda xp, x: -x,
    "number": lambda xp, x, a, b: x * a + b,
    "divide": lambda xp, x, y: x / (xp.abs(y) + 1),
    "add": lambda xp, x, y: x + y,
    "subtract": lambda xp, x, y: x - y,
    "multiply": lambda xp, x, y: x * y,
    "maximum": lambda xp, x, y: xp.maximum(x, y),
    "minimum": lambda xp, x, y: xp.minimum(x, y),
    "less": lambda xp, x, y: x < y,
    "equal": lambda xp, x, y: xp.equal(x, y),
    "where": lambda xp, c, x, y: xp.where(c, x, y),
    "remainder": lambda xp, x, n: x % n,
    "floor_divide": lambda xp, x, n: x // n,
    "shift": lambda xp, x, n: x << n,
    "and": lambda xp, x, y: x & y,
    "xor": lambda xp, x, y: x ^ y,
    "cast": lambda xp, x, dtype: xp.cast(x, dtype),
    "reshape": lambda xp, x, shape: x.reshape(shape),
    "permute": lambda xp, x, axes: xp.permute(x, axes),
    "broadcast": lambda xp, x, shape: xp.broadcast_to(x, shape),
    "flip": lambda xp, x, axis: xp.flip(x, axis),
    "roll": lambda xp, x, by, axis: xp.roll(x, by, axis),
    "slice": lambda xp, x, key: x[key],
    "concat": lambda xp, x, y, axis: xp.concat([x, y], axis),
    "stack": lambda xp, x, y, axis: xp.stack([x, y], axis),
    "sum": lambda xp, x, axis: xp.sum(x, axis),
    "mean": lambda xp, x, axis: xp.mean(x, axis),
    "amax": lambda xp, x, axis: xp.amax(x, axis),
    "amin": lambda xp, x, axis: xp.amin(x, axis),
    "any": lambda xp, x, axis: xp.any(x, axis),
    "all": lambda xp, x, axis: xp.all(x, axis),
    "argmax": lambda xp, x, axis: xp.argmax(x, axis),
    "cumsum": lambda xp, x, axis: xp.cumsum(x, axis),
    "matmul": lambda xp, x, y: x @ y,
    "write": _write,
    "write_view": _write_view,
    "add_into": _add_into,
}
WRITES = {"write", "write_view", "add_into"}


def run(xp, steps: list[Step], leaves: list) -> list:
    values = list(leaves)
    for step in steps:
        values.append(RUN[step.name](xp, *(values[i] for i in step.operands), *step.given))
    return values


# -- how they are chosen


class Program:
    def __init__(self, seed: int):
        self.r = r = random.Random(seed)
        numbers = np.random.default_rng(seed)
        self.leaves = []
        for dtype in [r.choice(FLOATS), r.choice(FLOATS), r.choice(INTS)]:
            shape = r.choice(SHAPES)
            integers = numbers.integers(0, 9, shape)
            self.leaves.append(np.asarray(numbers.normal(size=shape) if dtype in FLOATS else integers).astype(dtype))
        self.values, self.steps = list(self.leaves), []
        for _ in range(r.randrange(2, 10)):
            self._choose()

    def _add(self, name: str, operands: tuple[int, ...], *given):
        made = np.asarray(RUN[name](_NumPy, *(self.values[i] for i in operands), *given))
        if made.size > 2000 or made.ndim > 5:
            return None
        self.steps.append(Step(name, operands, given))
        self.values.append(made)
        if made.dtype.kind == "f" and made.size and not np.abs(made).max() < LARGEST:
            self._add("tanh", (len(self.values) - 1,))
        return len(self.values) - 1

    def _kind(self, i: int) -> str:
        return self.values[i].dtype.kind

    def _like(self, i: int) -> int:
        """A value of the dtype of the i-th that broadcasts with it."""
        x, r = self.values[i], self.r
        found = [
            k for k, v in enumerate(self.values) if v.dtype == x.dtype and _broadcast(v.shape, x.shape) is not None
        ]
        return r.choice(found)

    def _choose(self):
        r = self.r
        i = r.randrange(len(self.values))
        x = self.values[i]
        ways = [self._move]
        if x.dtype.kind == "f":
            ways += [self._smooth] * 3 + [self._reduce, self._write, self._join]
            if x.ndim >= 2 and x.shape[-1]:
                ways.append(self._product)
        elif x.dtype.kind == "b":
            ways += [self._bools] * 2
        else:
            ways += [self._integers] * 3 + [self._reduce, self._write, self._join]
        r.choice(ways)(i, x)

    def _smooth(self, i, x):
        r = self.r
        masks = [
            k for k, v in enumerate(self.values) if v.dtype.kind == "b" and _broadcast(v.shape, x.shape) is not None
        ]
        name = r.choice(["tanh", "exp", "sqrt", "sin", "abs", "negate", "number", "divide", "add", "subtract", "multiply",
                         "maximum", "minimum", *["where"] * bool(masks)])  # fmt: skip
        if name == "number":
            self._add(name, (i,), r.choice([0.5, -2.0, 3]), r.choice([0.25, 1, -1.5]))
        elif name == "where":
            mask = r.choice(masks)
            other = [k for k, v in enumerate(self.values) if v.dtype == x.dtype and v.shape == x.shape]
            self._add(name, (mask, i, r.choice(other)))
        elif name in ("divide", "add", "subtract", "multiply", "maximum", "minimum"):
            self._add(name, (i, self._like(i)))
        else:
            self._add(name, (i,))

    def _integers(self, i, x):
        r = self.r
        name = r.choice(["add", "subtract", "multiply", "maximum", "less", "equal", "remainder", "floor_divide", "shift",
                         "and", "xor", "cast", "argmax"])  # fmt: skip
        if name in ("remainder", "floor_divide"):
            self._add(name, (i,), r.choice([2, 3, 7]))
        elif name == "shift":
            self._add(name, (i,), r.randrange(3))
        elif name == "cast":
            small = x.size == 0 or np.abs(x.astype(np.int64)).max() < LARGEST
            self._add(name, (i,), r.choice([*INTS, "bool", *(FLOATS if small else ())]))
        elif name == "argmax":
            if x.size:
                self._add(name, (i,), r.choice([None, *range(x.ndim)]))
        else:
            self._add(name, (i, self._like(i)))

    def _bools(self, i, x):
        r = self.r
        name = r.choice(["and", "xor", "cast", "any", "all"])
        if name == "cast":
            self._add(name, (i,), r.choice(["int32", "int64", "float32", "float64"]))
        elif name in ("any", "all"):
            self._add(name, (i,), r.choice([None, *range(x.ndim)]))
        else:
            self._add(name, (i, self._like(i)))

    def _move(self, i, x):
        r = self.r
        name = r.choice(["reshape", "permute", "broadcast", "flip", "roll", "slice", "slice"])
        if name == "reshape":
            self._add(name, (i,), r.choice([(x.size,), (1, *x.shape), (*x.shape, 1)]))
        elif name == "permute":
            self._add(name, (i,), tuple(r.sample(range(x.ndim), x.ndim)))
        elif name == "broadcast":
            self._add(name, (i,), (r.randrange(1, 4), *x.shape))
        elif x.ndim:
            axis = r.randrange(x.ndim)
            if name == "slice":
                self._add(name, (i,), self._key(x))
            else:
                self._add(name, (i,), *((axis,) if name == "flip" else (r.randrange(-3, 4), axis)))

    def _key(self, x):
        r = self.r
        key = []
        for n in x.shape[: r.randrange(1, x.ndim + 1)]:
            whole = slice(None, None, r.choice([1, 1, 2, -1]))
            key.append(r.choice([whole, slice(r.randrange(n + 1), None), *([r.randrange(n)] if n else [])]))
        return tuple(key)

    def _reduce(self, i, x):
        r = self.r
        axis = r.choice([None, *range(x.ndim)])
        extremes = ["amax", "amin"] if x.size else []
        if x.dtype.kind == "f":
            name = r.choice(["sum", *extremes, *(["mean"] if x.size else []), *(["cumsum"] if x.ndim else [])])
        else:
            if x.dtype != np.int64:  # sums of others have other types elsewhere
                i = self._add("cast", (i,), "int64")
            name = r.choice(["sum", *extremes])
        if i is not None:
            self._add(name, (i,), r.randrange(x.ndim) if name == "cumsum" else axis)

    def _write(self, i, x):
        r = self.r
        name = r.choice(["write", "write_view", "add_into"]) if x.ndim else "add_into"
        if name == "add_into":
            others = [
                k for k, v in enumerate(self.values) if v.dtype == x.dtype and _broadcast(v.shape, x.shape) == x.shape
            ]
            self._add(name, (i, r.choice(others)))
        elif name == "write":
            self._add(name, (i,), self._key(x), r.choice([0, 2, 1]))
        else:
            key = self._key(x)
            if not all(isinstance(k, int) for k in key) or len(key) < x.ndim:  # an element of an array is no view
                self._add(name, (i,), key, r.choice([2, 3]))

    def _join(self, i, x):
        r = self.r
        same = [k for k, v in enumerate(self.values) if v.dtype == x.dtype and v.shape == x.shape]
        if x.ndim:
            self._add(r.choice(["concat", "stack"]), (i, r.choice(same)), r.randrange(x.ndim))

    def _product(self, i, x):
        fits = [
            k for k, v in enumerate(self.values) if v.dtype == x.dtype and v.ndim == 2 and v.shape[0] == x.shape[-1]
        ]
        if fits:
            self._add("matmul", (i, self.r.choice(fits)))


def _broadcast(a: tuple, b: tuple) -> tuple | None:
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        return None


# -- and compared


def compare(seed: int):
    """Raises AssertionError where the program with this seed has other results one way than another."""
    program = Program(seed)
    steps, expected = program.steps, program.values
    text = f"seed {seed}: " + "; ".join(f"{s.name}{s.operands}{s.given or ''}" for s in steps)

    def leaves():
        return [td.tensor(v, requires_grad=v.dtype.kind == "f") for v in program.leaves]

    def gradients(*given):
        values = run(_Tandem, steps, given)
        floats = [v for v in given if v.dtype.is_floating_point]
        loss = sum((td.tanh(v) * (k % 3 + 1)).sum().double() for k, v in enumerate(values) if v.requires_grad)
        return values, td.autograd.grad(loss, floats, allow_unused=True)

    values, grads = gradients(*leaves())
    _same(text, "eager", expected, values)
    others, other_grads = td.compile(gradients)(*leaves())
    _same(text, "compiled", expected, others)
    _same(text, "gradients", [g.numpy() for g in grads if g is not None], [g for g in other_grads if g is not None])
    if not any(step.name in WRITES for step in steps):
        _same(text, "session", expected, _in_session(program))


def _in_session(program: Program) -> list:
    graph = td.Graph()
    with graph.as_default():
        fed = [td.placeholder(getattr(td, v.dtype.name), v.shape) for v in program.leaves]
        fetched = run(_Tandem, program.steps, fed)[len(fed) :]
    with td.Session(graph) as session:
        found = session.run(fetched, dict(zip(fed, program.leaves, strict=True)))
    return [*program.leaves, *found]


def _same(text: str, way: str, expected: list, found: list):
    assert len(expected) == len(found), f"{way}: {text}"
    for k, (a, b) in enumerate(zip(expected, found, strict=True)):
        b = np.asarray(b.detach().numpy() if isinstance(b, td.Tensor) else b)
        where = f"{way}, value {k} of {text}"
        assert a.dtype == b.dtype, f"{a.dtype} {b.dtype}: {where}"
        assert a.shape == b.shape, f"{a.shape} {b.shape}: {where}"
        tolerance = TOLERANCE.get(a.dtype.name, 0)
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance, err_msg=where)
