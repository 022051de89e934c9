"""Random programs that are exported with two free sizes: what files compute for other sizes is what the programs do."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tandem as td
from tests.onnx.writers.roundtrip import flat

pytest.importorskip("onnx", reason="the package onnx is not installed")

ONE = [
    td.tanh, lambda x: x.abs().sqrt(), lambda x: x.softmax(-1), lambda x: x - x.mean(-1, keepdims=True), lambda x: x.cumsum(1),
    lambda x: td.where(x > 0, x, x * 0.1), lambda x: x.flip(1), lambda x: x.clip(-1, 1), lambda x: x.sort(1)[0],
    lambda x: x / (x.std(1, keepdims=True) + 1), lambda x: td.roll(x, 1, 1), lambda x: td.nn.functional.pad(x, (1, 1))[:, 1:-1],
    lambda x: x.reshape(-1).reshape(x.shape), lambda x: td.concat([x[:, 1:], x[:, :1]], 1), lambda x: x.cummax(1)[0],
    lambda x: td.triu(x @ x.mT) @ x / 10, lambda x: td.einsum("ij,kj->ik", x, x) @ x / 20, lambda x: td.stack([x, -x], 2).amax(2),
    lambda x: x.unfold(1, 2, 1).sum(-1).sum(1, keepdims=True) + x, lambda x: td.logsumexp(x, 0) - x, lambda x: x.var(0) + x,
    lambda x: abs(td.fft.rfft(x)).sum(1, keepdims=True) * 0.1 + x, lambda x: x.diff(1).sum() * 0.1 + x,
]  # fmt: skip
TWO = [
    td.add, td.mul, td.maximum, td.atan2, lambda a, b: a @ b.mT @ a / 20, lambda a, b: td.where(a > b + 0.123, a, b * 0.5),
    lambda a, b: td.cond((a * b).sum() > 0.123, lambda p, q: p - q, lambda p, q: p + q, a, b),
]  # fmt: skip


def program(seed: int):
    choose = random.Random(seed)
    steps = [
        (choose.choice(TWO) if choose.random() < 0.3 else choose.choice(ONE), choose.random(), choose.random())
        for _ in range(choose.randrange(3, 9))
    ]

    def fn(x):
        values = [x]
        for function, first, second in steps:
            a, b = (values[int(share * len(values))] for share in (first, second))
            values.append(function(a, b) if function in TWO else function(a))
        return values[-1], values[len(values) // 2]

    return fn


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 100, 20))
def test_files_compute_what_programs_do(first, tmp_path):
    for seed in range(first, first + 20):
        fn, generator = program(seed), td.Generator().manual_seed(seed)
        x = td.randn(5, 7, generator=generator)
        td.export.save(fn, x, tmp_path / "m", dynamic={"x": (0, 1)})
        runs = [td.export.load(tmp_path / "m"), td.onnx.load(td.onnx.save(fn, x, dynamic={"x": (0, 1)}))]
        for shape in [(5, 7), (3, 4), (2, 9)]:
            x = td.randn(*shape, generator=generator)
            for expected, *made in zip(flat(fn(x)), *(flat(run(x)) for run in runs), strict=True):
                for got in made:
                    np.testing.assert_allclose(
                        got.numpy(), expected.numpy(), rtol=2e-3, atol=2e-4, err_msg=f"seed {seed}"
                    )
