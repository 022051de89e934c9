"""Random graphs: whatever is fused or split, the values are NumPy's."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tandem.ops as F
from tandem.codegen import lower
from tandem.ops.index import Gather
from tandem.ops.movement import Embed, Expand, Permute, Reshape, Slice
from tests.codegen.ops import add, mul, named, reduce
from tests.codegen.run_schedule import Trace, run

absolute = named("abs", lambda b, x: b.abs(x))
squash = named("squash", lambda b, x: x / (b.abs(x) + 1.0))
costly = named("costly", lambda b, x: b.sqrt(b.abs(x)) / (b.sqrt(b.abs(x) + 1.0) + 1.0))


def _costly(x):
    return np.sqrt(np.abs(x)) / (np.sqrt(np.abs(x) + 1) + 1)


class Maker:
    """Grows a graph and its NumPy twin step by step."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.pairs: list = []
        self.trace = Trace()

    def make(self, steps: int):
        r = self.random
        with self.trace:
            for _ in range(r.randint(1, 3)):
                self.new_input()
            for _ in range(steps):
                kind = r.choice(
                    ["binary"] * 4
                    + ["unary"] * 3
                    + ["reduce"] * 3
                    + ["permute", "reshape", "slice", "embed", "gather", "expand"]
                )
                value, array = r.choice(self.pairs[-4:])
                made = getattr(self, kind)(value, array)
                if made is not None and made[1].size <= 20000:
                    self.pairs.append(made)
        outputs = [self.pairs[-1], *r.sample(self.pairs, min(len(self.pairs), r.randint(0, 3)))]
        self.trace.graph.outputs = [v for v, _ in outputs]
        return [a for _, a in outputs]

    def new_input(self):
        r = self.random
        shape = tuple(r.choice([1, 2, 3, 5, 8, 9, 17, 40]) for _ in range(r.choice([0, 1, 2, 2, 3, 3])))
        array = self.elements(shape)
        if r.random() < 0.5 and array.ndim:
            axes = list(range(array.ndim))
            r.shuffle(axes)
            array = array.transpose(axes)
        if r.random() < 0.3 and array.ndim:
            array = array[tuple(slice(None, None, r.choice([1, 1, 2, -1])) for _ in range(array.ndim))]
        self.pairs.append((self.trace.input(array), array))

    def elements(self, shape):
        return self.rng.standard_normal(shape).astype(np.float32)

    def other(self, value, array):
        """Something of the same shape: a known value, made to fit by broadcasting, or a new input."""
        r = self.random
        candidates = []
        for v, a in self.pairs:
            try:
                fits = a.ndim <= array.ndim and np.broadcast_shapes(a.shape, array.shape) == array.shape
            except ValueError:
                continue
            if fits:
                candidates.append((v, a))
        v, a = r.choice(candidates)
        if a.ndim == 0:
            return v, a
        shape = (1,) * (array.ndim - a.ndim) + tuple(v.shape)
        if a.ndim < array.ndim:
            v, a = Reshape(shape)(v), a.reshape((1,) * (array.ndim - a.ndim) + a.shape)
        for d, e in zip(v.shape, value.shape):
            assert type(d) is int or d == e
        if any(type(d) is int and d == 1 and not (type(e) is int and e == 1) for d, e in zip(v.shape, value.shape)):
            v, a = Expand(tuple(value.shape))(v), np.broadcast_to(a, array.shape)
        return v, a

    def binary(self, value, array):
        v, a = self.other(value, array)
        return self.random.choice([(add(value, v), array + a), (squash(mul(value, v)), _squash(array * a))])

    def unary(self, value, array):
        r = self.random.random()
        if r < 0.4:
            return absolute(value), np.abs(array)
        return (squash(value), _squash(array)) if r < 0.6 else (costly(value), _costly(array))

    def reduce(self, value, array):
        axes = tuple(a for a in range(array.ndim) if self.random.random() < 0.5)
        if not axes or not array.size:
            return None
        kind = self.random.choice(["sum", "max", "min"])
        result = reduce(kind, value, axes), getattr(np, kind)(array, axis=axes, keepdims=True)
        if kind == "sum":  # keep magnitudes small
            return squash(result[0]), _squash(result[1])
        return result

    def permute(self, value, array):
        axes = list(range(array.ndim))
        self.random.shuffle(axes)
        return Permute(tuple(axes))(value), array.transpose(axes)

    def reshape(self, value, array):
        if array.ndim < 2:
            return None
        k = self.random.randrange(array.ndim - 1)
        shape = value.shape
        merged = (*shape[:k], shape[k] * shape[k + 1], *shape[k + 2 :])
        plain = (*array.shape[:k], array.shape[k] * array.shape[k + 1], *array.shape[k + 2 :])
        flat = Reshape(merged)(value), array.reshape(plain)
        if self.random.random() < 0.5:
            return flat
        changed, plain = self.unary(*flat)
        return Reshape(tuple(shape))(changed), plain.reshape(array.shape)

    def slice(self, value, array):
        starts, steps, sizes, index = [], [], [], []
        for n, d in zip(array.shape, value.shape):
            if n > 2 and self.random.random() < 0.6:
                start = self.random.randint(0, 1)
                step = self.random.choice([1, 2])
                size = self.random.randint(1, (n - start - 1) // step + 1)
                starts.append(start), steps.append(step), sizes.append(size)
                index.append(slice(start, start + (size - 1) * step + 1, step))
            else:
                starts.append(0), steps.append(1), sizes.append(d)
                index.append(slice(None))
        return Slice(tuple(starts), tuple(steps), tuple(sizes))(value), array[tuple(index)]

    def embed(self, value, array):
        starts, steps, sizes, index, shape = [], [], [], [], []
        for n, d in zip(array.shape, value.shape):
            if self.random.random() < 0.5:
                start, step, extra = self.random.randint(0, 2), self.random.choice([1, 2, 3]), self.random.randint(0, 2)
                starts.append(start), steps.append(step), sizes.append(d * step + start + extra)
                shape.append(n * step + start + extra)
                index.append(slice(start, start + (n - 1) * step + 1, step) if n else slice(0, 0))
            else:
                starts.append(0), steps.append(1), sizes.append(d), shape.append(n), index.append(slice(None))
        out = np.zeros(shape, array.dtype)
        out[tuple(index)] = array
        return Embed(tuple(starts), tuple(steps), tuple(sizes))(value), out

    def gather(self, value, array):
        if not array.ndim or not array.shape[0]:
            return None
        index = self.rng.integers(-array.shape[0], array.shape[0], self.random.choice([(4,), (2, 3), (17,)]))
        return Gather()(value, self.trace.input(index)), array[index]

    def expand(self, value, array):
        n = self.random.choice([2, 9])
        v = Reshape((1, *value.shape))(value)
        return Expand((n, *value.shape))(v), np.broadcast_to(array, (n, *array.shape))


def _squash(x):
    return x / (np.abs(x) + np.float32(1))


def _along(b, x):
    size = b.abs(x) + 1.0
    return b.complex(b.real(x) / size, b.imag(x) / size)


along = named("along", _along)
turn = named("turn", lambda b, x: x * (0.6 + 0.8j))


class ComplexMaker(Maker):
    """The same with complex numbers, their parts, and parts put together again."""

    def elements(self, shape):
        kind = self.kind = getattr(self, "kind", None) or self.random.choice([np.complex64, np.complex128])
        return np.asarray(self.rng.standard_normal(shape) + 1j * self.rng.standard_normal(shape), kind)

    def binary(self, value, array):
        v, a = self.other(value, array)
        return self.random.choice([(add(value, v), array + a), (along(mul(value, v)), _squash(array * a))])

    def unary(self, value, array):
        r = self.random.random()
        if r < 0.3:
            return turn(value), array * self.kind(0.6 + 0.8j)
        if r < 0.5:
            return F.Conj()(value), np.conj(array)
        if r < 0.7:
            return F.Complex()(F.Part(1)(value), F.Part(0)(value)), array.imag + 1j * array.real
        if r < 0.9:
            pairs = np.stack([array.real, array.imag], -1)
            value, scale = F.AsReal()(value), absolute(F.AsReal()(value))
            return F.AsComplex()(add(value, scale)), (pairs + np.abs(pairs)) @ np.array([1, 1j])
        return along(value), _squash(array)

    def reduce(self, value, array):
        axes = tuple(a for a in range(array.ndim) if self.random.random() < 0.5)
        if not axes or not array.size:
            return None
        return along(reduce("sum", value, axes)), _squash(np.sum(array, axis=axes, keepdims=True))


def check_seed(seed: int, steps: int, kind=Maker):
    maker = kind(seed)
    expected = maker.make(steps)
    trace = maker.trace
    schedule = lower(trace.graph, trace.layouts)
    results = run(schedule, trace.graph, trace.arrays, parts=maker.random.choice([1, 2, 5]))
    for e, r in zip(expected, results, strict=True):
        assert e.shape == r.shape
        np.testing.assert_allclose(r, e, rtol=1e-3, atol=1e-3)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 14))
def test_random_graph(seed, steps):
    check_seed(seed, steps)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 12))
def test_random_complex_graph(seed, steps):
    check_seed(seed, steps, ComplexMaker)
