"""Operators on sharded tensors against the same operators on one rank: values and gradients, under all placements.

    CHECK_ONLY=sharded python -m pytest tests/ops        every operator that check_op checks (`make sharded-check`)

Ranks are threads, in meshes of 2, 3 and 2 x 2. Each operand is given every placement there is, the others being replicated, and
then some placements of all together. A call may be refused as ambiguous (ShardingError); a result that differs fails.
"""

from __future__ import annotations

import itertools
import os
import random

import numpy as np

import tandem as td
from tandem import distributed as dist

MESHES = ((2,), (3,), (2, 2))
REFUSED = (
    "a view of a sharded tensor cannot be written",
    "lie on several ranks",
)  # what looks at memory: as_strided, unfold
MOST = int(os.environ.get("SHARDED_MOST", "40"))  # ways to place the operands of a call on a mesh


def placements_of(array, mesh_ndim: int) -> list[tuple]:
    one = [dist.Replicate(), *(dist.Shard(d) for d in range(array.ndim))]
    if array.dtype.kind in "fc":
        one.append(dist.Partial())
    return list(itertools.product(one, repeat=mesh_ndim))


def ways(case, mesh_ndim: int, most: int) -> list[tuple]:
    """Placements for all operands: every one of each operand alone, and a sample of those of all together."""
    whole = (dist.Replicate(),) * mesh_ndim
    options = [placements_of(a, mesh_ndim) for a in case]
    found = []
    for i, own in enumerate(options):
        found += [tuple(p if j == i else whole for j in range(len(case))) for p in own]
    for a in case:  # all divided alike, as batches are
        if a.ndim:
            found.append(tuple((dist.Shard(0),) * mesh_ndim if b.ndim else whole for b in case))
            break
    rng = random.Random(f"{found} {most}")
    found = list(dict.fromkeys(found))
    if len(found) > most:
        found = found[:1] + rng.sample(found[1:], most - 1)
    if len(case) > 1:
        found += [tuple(rng.choice(own) for own in options) for _ in range(most // 2)]
    return list(dict.fromkeys(found))


def parts_of(result) -> list:
    return [p for p in (result if isinstance(result, (tuple, list)) else (result,)) if isinstance(p, td.Tensor)]


def run(fn, tensors, cotangents) -> tuple[list, list]:
    """Results and gradients of fn."""
    td.manual_seed(0)
    result = parts_of(fn(*tensors))
    floats = [(p, c) for p, c in zip(result, cotangents(result), strict=True) if p.requires_grad]
    if floats:
        td.autograd.backward([p for p, _ in floats], [c for _, c in floats])
    return result, [t.grad for t in tensors]


def numbers(shape, seed: int):
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape)


def check_sharded(fn, case, grad: bool, meshes=MESHES, most: int = MOST):
    if not case or any(a.size == 0 or a.dtype.name in ("bfloat16", "float16") for a in case):
        return

    def make(a):
        return td.tensor(a, requires_grad=grad and a.dtype.kind in "fc")

    def gradients(results):
        return [
            td.tensor(numbers(p.shape, i)).to(p.dtype) if p.dtype.is_inexact else None for i, p in enumerate(results)
        ]

    given = [make(a) for a in case]
    expected, expected_grads = run(fn, given, gradients)
    expected = [e.detach().numpy() for e in expected]
    expected_grads = [None if g is None else g.numpy() for g in expected_grads]
    problems: list[str] = []

    def work(shape, placements):
        mesh = dist.Mesh(shape)

        def sharded(a, p):
            made = dist.distribute_tensor(td.tensor(a), mesh, src_data_rank=None).redistribute(placements=p)
            made.requires_grad = grad and a.dtype.kind in "fc"
            return made

        def gradients_there(results):
            return [c if c is None or not isinstance(p, dist.DTensor) else dist.distribute_tensor(c, mesh, src_data_rank=None)
                    for p, c in zip(results, gradients(results), strict=True)]  # fmt: skip

        tensors = [sharded(a, p) for a, p in zip(case, placements, strict=True)]
        with dist.implicit_replication():
            results, grads = run(fn, tensors, gradients_there)
        return [_whole(t) for t in results], [None if g is None else _whole(g) for g in grads]

    for shape in meshes:
        for placements in ways(case, len(shape), most):
            where = f"mesh {shape}, {[list(p) for p in placements]}"
            try:
                for results, grads in dist.spawn(
                    work, int(np.prod(shape)), (shape, placements), engine="threads", timeout=300
                ):
                    compare(results, expected, f"{where}: result", problems)
                    compare(grads, expected_grads, f"{where}: gradient", problems)
            except td.ValueRangeError as error:
                if not any(text in str(error) for text in REFUSED):
                    problems.append(f"{where}: {error}")
            except td.ShardingError as error:
                if "not meet" not in str(error):
                    problems.append(f"{where}: {error}")
            except Exception as error:
                problems.append(f"{where}: {type(error).__name__}: {str(error)[:400]}")
        if problems:
            break
    assert not problems, f"{len(problems)} of the placements:\n" + "\n".join(problems[:4])


def _whole(t):
    return t.detach().numpy()


def compare(made, expected, where: str, problems: list[str]):
    if len(made) != len(expected):
        problems.append(f"{where}: {len(made)} results, expected {len(expected)}")
        return
    for i, (m, e) in enumerate(zip(made, expected, strict=True)):
        if (m is None) != (e is None):
            problems.append(f"{where} {i}: {'none' if m is None else 'one'}, expected {'none' if e is None else 'one'}")
        elif m is not None:
            wide = e.dtype.name in ("float64", "complex128")
            if m.shape != e.shape or m.dtype != e.dtype:
                problems.append(f"{where} {i}: {m.dtype} {m.shape}, expected {e.dtype} {e.shape}")
            elif not np.allclose(m, e, rtol=1e-9 if wide else 1e-3, atol=1e-10 if wide else 1e-4, equal_nan=True):
                problems.append(f"{where} {i}: {m.ravel()[:6]}, expected {e.ravel()[:6]}")
