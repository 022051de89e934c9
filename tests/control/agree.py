"""Eager, compiled and unrolled must agree: values, first and second derivatives."""

import numpy as np

import tandem as td


def derivatives(fn, tensors, order=2):
    """Value, gradients and second derivatives of a scalar made of fn's results."""
    xs = [t.detach().clone().requires_grad_() for t in tensors]
    results = _floats(fn(*xs))
    made = [r.detach() for r in results]
    total = sum((td.sin(r) * _weights(r)).sum() for r in results)
    first = _grads(total, xs, order > 1)
    made += first
    if order > 1:
        again = sum((g * g * _weights(g)).sum() for g in first)
        made += _grads(again, xs, False) if again.requires_grad else [td.zeros_like(x) for x in xs]
    return [t.detach().numpy() for t in made]


def _weights(r):
    return td.arange(r.numel()).reshape(r.shape).astype(r.dtype) * 0.3 + 1


def _floats(results):
    if isinstance(results, td.Tensor):
        return [results] if results.dtype.is_inexact else []
    if isinstance(results, dict):
        results = list(results.values())
    return [r for part in results if part is not None for r in _floats(part)]


def _grads(total, xs, create_graph):
    if not total.requires_grad:
        return [td.zeros_like(x) for x in xs]
    grads = td.autograd.grad(total, xs, create_graph=create_graph, allow_unused=True)
    return [td.zeros_like(x) if g is None else g for g, x in zip(grads, xs, strict=True)]


def check(fn, *tensors, reference=None, order=2, tolerance=1e-8):
    """fn compiled (its derivatives too) against fn eagerly, or against `reference`."""
    expected = derivatives(reference or fn, tensors, order)
    for name, made in (
        ("eager", derivatives(fn, tensors, order)),
        ("compiled", derivatives(td.compile(fn, whole=True), tensors, order)),
        ("derivatives inside", td.compile(lambda *ts: _inside(fn, ts, order), whole=True)(*tensors)),
    ):
        for a, b in zip(expected, made, strict=True):
            b = b.numpy() if isinstance(b, td.Tensor) else b
            np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance, err_msg=name)
    finite_differences(fn, tensors)


def _inside(fn, tensors, order):
    xs = [t.detach().clone().requires_grad_() for t in tensors]
    results = _floats(fn(*xs))
    total = sum((td.sin(r) * _weights(r)).sum() for r in results)
    first = _grads(total, xs, order > 1)
    made = [r.detach() for r in results] + [g.detach() for g in first]
    if order > 1:
        again = sum((g * g * _weights(g)).sum() for g in first)
        made += _grads(again, xs, False) if again.requires_grad else [td.zeros_like(x) for x in xs]
    return made


def finite_differences(fn, tensors, step=1e-6):
    def value(*ts):
        return float(sum((td.sin(r) * _weights(r)).sum() for r in _floats(fn(*ts))))

    compiled = td.compile(fn, whole=True)
    xs = [t.detach().clone().requires_grad_() for t in tensors]
    grads = _grads(sum((td.sin(r) * _weights(r)).sum() for r in _floats(compiled(*xs))), xs, False)
    generator = np.random.default_rng(0)
    for i, t in enumerate(tensors):
        direction = td.tensor(generator.standard_normal(t.shape), dtype=t.dtype)
        ends = [[u + direction * s if j == i else u for j, u in enumerate(tensors)] for s in (step, -step)]
        slope = (value(*ends[0]) - value(*ends[1])) / (2 * step)
        np.testing.assert_allclose(float((grads[i] * direction).sum()), slope, rtol=2e-5, atol=2e-6)
