"""Calls public functions with odd arguments. Run as a program, so that a crash ends only this process:

    python -m tests.fuzz.harness SEED CALLS [NAME]

Before each call its number and text go to standard output. Prints `bad: ...` for a call that raised what no call may raise, that
took too long or gave out more memory than allowed, and `done` at the end.
"""

from __future__ import annotations

import ast
import doctest
import faulthandler
import random
import sys
import time

import numpy as np

import tandem as td
from tandem.ops.define import FUNCTIONS, METHODS

ALLOWED = (
    td.TandemError,
    TypeError,
    ValueError,
    IndexError,
    OverflowError,
    MemoryError,
    BufferError,
)  # the last: DLPack's
# What a Python exception of ours may never be, although it is a RuntimeError, a TypeError, ... of Python's own.
LIMIT = 256 << 20  # bytes
SECONDS = 20  # for one call, compiling included

SIZES = [0, 1, 2, 3, 5]
DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
INTEGERS = [
    0,
    1,
    2,
    3,
    -1,
    -2,
    -3,
    4,
    5,
    7,
    -100,
    1000,
    2**31,
    2**31 - 1,
    -(2**31),
    2**62,
    2**63 - 1,
    -(2**63),
    2**63,
    2**64,
    10**30,
]
SMALL = [0, 1, 2, -1, -2, 3, -3]
FLOATS = [0.0, -0.0, 1.0, -1.5, 0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan")]
WORDS = [
    "sum",
    "mean",
    "none",
    "constant",
    "reflect",
    "replicate",
    "circular",
    "amax",
    "prod",
    "xy",
    "ij",
    "add",
    "",
    "float32",
    "cpu",
    "é",
]


class Maker:
    """Arguments, by chance."""

    def __init__(self, seed: int):
        self.r = random.Random(seed)

    def shape(self):
        r = self.r
        if r.random() < 0.02:
            return r.choice([(2**20, 0), (0, 2**40), (1,) * 16, (1,) * 12, (300, 1), (1, 300)])
        return tuple(r.choice(SIZES) for _ in range(r.choice([0, 1, 1, 2, 2, 2, 3, 3, 4])))

    def array(self, dtype: str):
        r, shape = self.r, self.shape()
        n = int(np.prod(shape, dtype=object))
        rng = np.random.default_rng(r.randrange(2**32))
        if dtype == "bool":
            return rng.integers(0, 2, shape).astype(bool)
        if "complex" in dtype:
            return np.asarray(rng.normal(size=shape) + 1j * rng.normal(size=shape))
        if "float" in dtype:
            x = np.asarray(rng.normal(size=shape))
            if n and r.random() < 0.3:
                x.reshape(-1)[rng.integers(n)] = r.choice(FLOATS)
            return x
        high = r.choice([2, 5, 100])
        return rng.integers(0 if dtype.startswith("u") else -high, high, shape)

    def tensor(self, dtype: str | None = None):
        r = self.r
        dtype = dtype or r.choice(DTYPES + ["float32", "int64"] * 4)
        x = td.tensor(self.array(dtype)).to(td.dtypes.as_dtype(dtype))
        way = r.random()
        if x.ndim and way < 0.1:
            x = x[..., ::2]
        elif x.ndim and way < 0.2:
            x = td.from_numpy(x.numpy()[..., ::-1])  # negative strides
        elif x.ndim > 1 and way < 0.3:
            x = x.transpose(0, -1)
        elif x.ndim and way < 0.35:
            x = x[:1].expand((3, *x.shape[1:])) if x.shape[0] else x
        elif x.ndim and way < 0.4 and x.shape[0] > 2:
            x = td.unfold(x, 0, 2, 1)
        elif way < 0.42:
            a = x.numpy().copy()
            a.flags.writeable = False
            x = td.from_numpy(a)
        if x.dtype.is_floating and r.random() < 0.3:
            x = x.clone().requires_grad_()
            if r.random() < 0.3:
                x = x * 2
        return x

    def number(self):
        r = self.r
        return r.choice([r.choice(SMALL), r.choice(INTEGERS), r.choice(FLOATS), True, False])

    def small(self):
        return self.r.choice(SMALL) if self.r.random() < 0.8 else self.r.choice(INTEGERS)

    def key(self):
        r = self.r
        kind = r.randrange(9)
        if kind <= 1:
            return self.small()
        if kind <= 3:
            return slice(*(r.choice([None, self.small()]) for _ in range(3)))
        if kind == 4:
            return r.choice([None, Ellipsis, True, False])
        if kind == 5:
            return self.tensor(r.choice(["int64", "bool", "uint8", "int32"]))
        if kind == 6:
            return [r.choice(SMALL) for _ in range(r.randrange(4))]
        return tuple(self.key() for _ in range(r.randrange(4)))

    def anything(self):
        r = self.r
        return r.choice([
            self.tensor, self.number, self.small, lambda: None, lambda: r.choice(WORDS),
            lambda: [self.tensor() for _ in range(r.randrange(4))],
            lambda: tuple(self.small() for _ in range(r.randrange(4))), lambda: td.dtypes.as_dtype(r.choice(DTYPES)), self.key,
            lambda: r.choice([{}, [], (), object(), b"ab", 1j, print, np.float32(2), np.array([1, 2]),
                               np.array("x"), [[1], [2, 3]], set()]),
        ])()  # fmt: skip

    def parameter(self, kind: str, name: str):
        """An argument of the right kind, mostly."""
        r = self.r
        if r.random() < 0.08:
            return self.anything()
        if kind in ("tensor", "optional_tensor"):
            if kind == "optional_tensor" and r.random() < 0.4:
                return None
            if name in ("index", "indices"):
                return self.tensor("int64")
            return self.number() if r.random() < 0.1 else self.tensor()
        if kind == "tensors":
            first = self.tensor()
            return [first if r.random() < 0.6 else self.tensor() for _ in range(r.randrange(4))]
        if kind == "int":
            return self.small()
        if kind == "ints":
            return self.small() if r.random() < 0.2 else tuple(self.small() for _ in range(r.randrange(5)))
        if kind == "generator":
            return r.choice([None, None, None, td.Generator(3), 5])
        if "axis" in name or "axes" in name:
            return r.choice([None, 0, 1, -1, -2, 2, (0, 1), (), (0, 0), (-1, 0), 7])
        return self.anything()

    def changed(self, value):
        """value, or something near it."""
        r = self.r
        if r.random() < 0.05:
            return self.anything()
        if isinstance(value, td.Tensor):
            return self.changed_tensor(value)
        if isinstance(value, bool):
            return r.choice([value, not value, self.small()])
        if isinstance(value, int):
            return r.choice([value, value + 1, value - 1, -value, 0, self.small()])
        if isinstance(value, float):
            return r.choice([value, -value, self.number()])
        if isinstance(value, (list, tuple)):
            items = [self.changed(v) for v in value]
            if items and r.random() < 0.1:
                items = r.choice([items[:-1], items + items[-1:]])
            return type(value)(items)
        return value if r.random() < 0.7 else r.choice([None, *WORDS])

    def changed_tensor(self, x):
        r = self.r
        x = x.detach()
        way = r.randrange(14)
        if way == 0 and x.ndim:
            axis = r.randrange(x.ndim)
            x = (
                x.index_select(
                    axis, td.tensor([r.randrange(max(n, 1)) for n in [x.shape[axis]] * r.randrange(5)], dtype=td.int64)
                )
                if x.shape[axis]
                else x
            )
        elif way == 1:
            x = x.unsqueeze(r.randrange(x.ndim + 1))
        elif way == 2 and x.ndim:
            x = x[0] if x.shape[0] else x
        elif way == 3 and x.ndim > 1:
            x = x.transpose(0, -1).contiguous().transpose(0, -1)
        elif way == 4 and x.ndim:
            x = td.concat([x, x], r.randrange(x.ndim))
        elif way == 5 and x.ndim:
            x = td.from_numpy(np.ascontiguousarray(x.numpy()[..., ::-1])[..., ::-1])
        elif way == 6:
            x = x.to(td.dtypes.as_dtype(r.choice(DTYPES)))
        elif way == 7 and x.dtype.is_floating and x.size:
            x = x.clone()
            x.view(-1)[r.randrange(x.size)] = r.choice(FLOATS)
        elif way == 8 and x.ndim and x.shape[-1]:
            x = x[..., :1].expand(x.shape)
        elif way == 9 and x.dtype.is_integer:
            x = x + r.choice([-1, 1, 100])
        if x.dtype.is_floating and r.random() < 0.5:
            x = x.clone().requires_grad_()
        return x


def examples() -> dict[str, list]:
    """Calls in docstrings, as (arguments, keywords): a place to start from that works."""
    found: dict[str, list] = {}
    scope = {"td": td, "np": np}
    for name, function in FUNCTIONS.items():
        for example in doctest.DocTestParser().get_examples(function.__doc__ or ""):
            try:
                tree = ast.parse(example.source)
            except SyntaxError:
                continue
            for node in ast.walk(tree):
                is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                if is_call and node.func.attr == function.__name__ and ast.unparse(node.func.value) == "td":
                    try:
                        args = list(eval(f"[{', '.join(map(ast.unparse, node.args))}]", scope))
                        kwargs = {k.arg: eval(ast.unparse(k.value), scope) for k in node.keywords}
                    except NameError:  # from an earlier line of the example
                        continue
                    found.setdefault(name, []).append((args, kwargs))
    for name in FUNCTIONS:
        if name.endswith("_") and name not in found and name[:-1] in found:
            found[name] = found[name[:-1]]
    return found


def text_of(value) -> str:
    if isinstance(value, td.Tensor):
        grad = ", grad" if value.requires_grad else ""
        return f"<{value.dtype.name}{list(value.shape)} strides {list(value.strides)}{grad}>"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(text_of, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k}: {text_of(v)}' for k, v in value.items())}}}"
    return repr(value)


def make_call(maker: Maker, name: str):
    """(text, function to call)"""
    r = maker.r
    if name == "getitem":
        x, key = maker.tensor(), maker.key()
        return f"x[key] x={text_of(x)} key={text_of(key)}", lambda: x[key]
    if name == "setitem":
        x, key = maker.tensor(), maker.key()
        value = r.choice([maker.number, maker.tensor, lambda: x])()
        return f"x[key]=v x={text_of(x)} key={text_of(key)} v={text_of(value)}", lambda: x.__setitem__(key, value)
    function = FUNCTIONS[name]
    if EXAMPLES.get(name) and r.random() < 0.6:
        args, kwargs = r.choice(EXAMPLES[name])
        args, kwargs = [maker.changed(a) for a in args], {k: maker.changed(v) for k, v in kwargs.items()}
        for p in getattr(function, "parameters", ()):
            if not p.required and p.name not in kwargs and r.random() < 0.15:
                kwargs[p.name] = maker.parameter(p.kind, p.name)
        return finish_call(maker, name, function, args, kwargs)
    parameters = getattr(function, "parameters", None)
    if parameters is None:
        count = r.choice([0, 1, 1, 2, 2, 3, 4])
        args = [maker.tensor() if i == 0 and r.random() < 0.8 else maker.anything() for i in range(count)]
        kwargs = {}
    else:
        args, kwargs = [], {}
        for p in parameters:
            if not p.required and r.random() < 0.5:
                continue
            value = maker.parameter(p.kind, p.name)
            if p.keyword_only or (not p.required and len(args) < len(kwargs)) or r.random() < 0.2:
                kwargs[p.name] = value
            elif len(args) == sum(not q.keyword_only and q.required for q in parameters[: len(args)]):
                args.append(value)
            else:
                kwargs[p.name] = value
        if r.random() < 0.03:
            args = args[:-1]
        if len(args) > 1 and isinstance(args[0], td.Tensor) and r.random() < 0.1:
            args[1] = args[0][:] if args[0].ndim and r.random() < 0.5 else args[0]  # the same memory twice
    return finish_call(maker, name, function, args, kwargs)


def finish_call(maker: Maker, name: str, function, args: list, kwargs: dict):
    r = maker.r
    as_method = name in METHODS and args and isinstance(args[0], td.Tensor) and r.random() < 0.3
    text = f"{'method ' if as_method else ''}{name} args={text_of(args)} kwargs={text_of(kwargs)}"
    if as_method:
        return text, lambda: getattr(args[0], name)(*args[1:], **kwargs)
    return text, lambda: function(*args, **kwargs)


def use(result, r: random.Random):
    """What users do with results: look at them, differentiate them."""
    for t in result if isinstance(result, (tuple, list)) else [result]:
        if not isinstance(t, td.Tensor):
            continue
        assert len(t.shape) == len(t.strides) == t.ndim
        if t.size < 100_000:
            repr(t)
            t.detach().clone()
            if t.requires_grad and t.dtype.is_floating and r.random() < 0.7:
                t.sum().backward()
                return


EXAMPLES: dict[str, list] = {}

# Waits for a key, reads files, changes global state: not for chance.
SKIP = {"seed", "manual_seed", "set_default_dtype", "set_num_threads", "save", "load"}


def names_of_calls() -> list[str]:
    return sorted(n for n in FUNCTIONS if n not in SKIP) + ["getitem", "setitem"] * 8


def prepare():
    """Once in a process."""
    if not EXAMPLES:
        faulthandler.enable()
        EXAMPLES.update(examples())
        td.memory.set_limit(LIMIT)


def run_call(seed: int):
    """One call by chance. Raises AssertionError where it does what no call may do."""
    prepare()
    r = random.Random(seed)
    problem, _ = try_call(r.choice(names_of_calls()), r.randrange(2**62), lambda text: print(text, flush=True))
    assert problem is None, problem


def try_call(name: str, seed: int, tell) -> tuple[str | None, bool]:
    """(what is wrong with the call, whether it gave a result). `tell` gets the call as text before it is made."""
    maker = Maker(seed)
    try:
        text, call = make_call(maker, name)
    except ALLOWED as e:
        tell(f"could not make arguments of {name}: {e!r}"[:300])
        return None, False
    tell(text)
    faulthandler.dump_traceback_later(SECONDS * 12, exit=True)
    start = time.monotonic(), time.process_time()
    problem, succeeded = None, False
    try:
        result = call()
        succeeded = True
        use(result, maker.r)
    except ALLOWED as e:
        if isinstance(e, td.InternalError) or "symbolic" in str(e):
            problem = f"{type(e).__name__}: {e}\n  in {text}"
    except BaseException as e:
        problem = f"{type(e).__name__}: {e}\n  in {text}"
    faulthandler.cancel_dump_traceback_later()
    # On a busy machine the clock goes on while the call does not; on many cores its time is more than the clock's.
    took = min(time.monotonic() - start[0], time.process_time() - start[1])
    return (f"took {took:.1f} s\n  in {text}" if took > SECONDS else problem), succeeded


def main(seed: int, calls: int, only: str | None):
    prepare()
    names = names_of_calls()
    r = random.Random(seed)
    bad, succeeded = 0, set()
    for number in range(calls):
        name = only or r.choice(names)
        problem, worked = try_call(name, r.randrange(2**62), lambda text, n=number: print(f"{n}: {text}", flush=True))
        if worked:
            succeeded.add(name)
        if problem is not None:
            bad += 1
            print(f"bad: {number}: {problem}", flush=True)
    print(f"done: {bad} bad; no call succeeded of: {' '.join(sorted(set(names) - succeeded))}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
