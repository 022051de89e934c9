"""Random functions under transforms: what they give must be what plain eager calls give.

A function is a list of steps on float64 tensors, chosen while it first runs, so that every step fits. It is then run by vmap
against a loop, by jvp against reverse mode, to second order, by checkpoint, compiled, replayed, and from a saved file.
"""

from __future__ import annotations

import contextlib
import os
import random
import tempfile

import numpy as np

import tandem as td
from tandem.nn import functional as F

RTOL, ATOL = 1e-7, 1e-9
STEPS: dict[str, object] = {}  # name: function of (random, values) that gives a function of the values, or None


def step(f):
    STEPS[f.__name__] = f
    return f


def _pick(r: random.Random, values: list, fits=lambda x: True) -> int | None:
    found = [i for i, x in enumerate(values) if fits(x)]
    return r.choice(found[-6:]) if found else None


def _constant(r: random.Random, *shape: int):
    return td.tensor(np.random.default_rng(r.randrange(2**31)).standard_normal(shape) * 0.5)


@step
def unary(r, values):
    i = _pick(r, values)
    f = r.choice(
        [
            td.tanh,
            td.sin,
            td.sigmoid,
            F.softplus,
            F.gelu,
            F.silu,
            td.erf,
            F.mish,
            lambda x: x * 0.5 - 1,
            lambda x: x**2 / (1 + x**2),
            lambda x: td.sqrt(1 + x * x),
            lambda x: td.log(2 + td.cos(x)),
            td.atan,
        ]
    )
    return lambda v: f(v[i])


@step
def binary(r, values):
    i = _pick(r, values)
    j = _pick(r, values, lambda y: _broadcasts(values[i], y))
    f = r.choice([td.add, td.subtract, td.multiply, lambda a, b: a / (2 + td.cos(b)), td.logaddexp, td.hypot])
    return lambda v: f(v[i], v[j] + 0.1)


def _broadcasts(a, b) -> bool:
    try:
        return np.prod(np.broadcast_shapes(a.shape, b.shape), dtype=int) <= 512
    except ValueError:
        return False


@step
def movement(r, values):
    i = _pick(r, values, lambda x: x.ndim >= 1)
    if i is None:
        return None
    n, a, k = values[i].ndim, r.randrange(values[i].ndim), r.randrange(1, 3)
    order = r.sample(range(n), n)
    f = r.choice(
        [
            lambda x: x.flip(a),
            lambda x: x.roll(k, a),
            lambda x: x.permute(order),
            lambda x: x.flatten(),
            lambda x: td.pad(x, (1, 1)),
            lambda x: x.unsqueeze(a),
            lambda x: x.transpose(0, -1).contiguous(),
            lambda x: x.repeat_interleave(2, a) if x.size < 200 else x,
            lambda x: td.tile(x, (2,)) if x.size < 200 else x,
            lambda x: x.reshape(-1, x.shape[-1]),
            lambda x: td.stack([x, x * 2], a) if x.size < 200 else x,
            lambda x: td.concat([x, -x], a) if x.size < 200 else x,
            lambda x: td.split(x, 1, a)[-1],
            lambda x: td.tril(x) if x.ndim > 1 else x,
            lambda x: x.unfold(a, min(2, x.shape[a]), 1) if x.size < 200 else x,
            lambda x: td.movedim(x, a, 0),
        ]
    )
    return lambda v: f(v[i])


@step
def indexing(r, values):
    i = _pick(r, values, lambda x: x.ndim >= 1 and x.shape[0] > 1)
    if i is None:
        return None
    n = values[i].shape[0]
    rows = td.tensor([r.randrange(n) for _ in range(3)])
    key = r.choice(
        [
            r.randrange(n),
            -1,
            slice(None, None, -1),
            slice(1, None),
            slice(None, None, 2),
            (Ellipsis, None),
            rows,
            [0, n - 1],
            (slice(0, 2), Ellipsis, slice(None, 1)) if values[i].ndim > 1 else slice(0, 1),
        ]
    )
    return lambda v: v[i][key]


@step
def lookups(r, values):
    i = _pick(r, values, lambda x: x.ndim >= 1 and x.shape[-1] > 1)
    if i is None:
        return None
    shape, n = values[i].shape, values[i].shape[-1]
    index = td.tensor(np.random.default_rng(r.randrange(2**31)).integers(0, n, shape))
    f = r.choice(
        [
            lambda x: td.gather(x, -1, index),
            lambda x: td.take_along_dim(x, index, -1),
            lambda x: td.scatter_add(x * 0.5, -1, index, x),
            lambda x: td.index_select(x, -1, index.flatten()[:3]),
            lambda x: td.where(index > n // 2, x, x * 0.1),
            lambda x: td.masked_fill(x, index == 0, 0.25),
            lambda x: td.index_add(x, -1, index.flatten()[:1], x[..., :1]),
        ]
    )
    return lambda v: f(v[i])


@step
def reduction(r, values):
    i = _pick(r, values, lambda x: x.ndim >= 1 and x.size > 0)
    if i is None:
        return None
    a, keep = r.randrange(values[i].ndim), r.random() < 0.5
    f = r.choice(
        [
            lambda x: td.sum(x, a, keepdims=keep),
            lambda x: td.mean(x, a, keepdims=keep),
            lambda x: td.logsumexp(x, a, keepdims=keep),
            lambda x: td.var(x, a, keepdims=keep, correction=0),
            lambda x: td.softmax(x, a),
            lambda x: td.log_softmax(x, a),
            lambda x: td.cumsum(x, a),
            lambda x: td.amax(x, a, keepdims=keep),
            lambda x: td.sort(x, axis=a),
            lambda x: td.linalg.vector_norm(x + 0.3, axis=a, keepdims=keep),
            lambda x: td.prod(1 + 0.1 * td.tanh(x), a, keepdims=keep),
            lambda x: F.normalize(x + 0.2, dim=a),
            lambda x: td.cumprod(td.tanh(x), a),
            lambda x: td.logcumsumexp(x, a),
            lambda x: td.mean(x),
        ]
    )
    return lambda v: f(v[i])


@step
def layer(r, values):
    i = _pick(r, values, lambda x: x.ndim >= 1 and 0 < x.shape[-1] <= 16)
    if i is None:
        return None
    x = values[i]
    n = x.shape[-1]
    w, b, s = _constant(r, 3, n), _constant(r, 3), _constant(r, n)
    f = r.choice(
        [
            lambda x: F.linear(x, w, b),
            lambda x: x @ w.T,
            lambda x: F.layer_norm(x, (n,), s, s),
            lambda x: F.rms_norm(x, (n,), s),
            lambda x: td.einsum("...i,oi->o...", x, w),
            lambda x: F.glu(td.concat([x, x * s], -1), -1),
            lambda x: F.bilinear(x, x, _fixed(w, n)),
            lambda x: F.linear(F.relu(x + 0.05), w),
            lambda x: td.outer(x.flatten()[:4], s),
            lambda x: F.pairwise_distance(x, s),
            lambda x: F.cosine_similarity(x, s, dim=-1),
        ]
    )
    return lambda v: f(v[i])


def _fixed(w, n):
    return td.stack([td.outer(row, row) for row in w])


@step
def image(r, values):
    i = _pick(r, values, lambda x: x.ndim >= 1 and x.size >= 16)
    if i is None:
        return None
    w1, w2, b = _constant(r, 3, 2, 3), _constant(r, 4, 2, 2, 2), _constant(r, 4)
    line = lambda x: x.flatten()[:16].reshape(1, 2, 8)
    picture = lambda x: x.flatten()[:16].reshape(1, 2, 2, 4)
    f = r.choice(
        [
            lambda x: F.conv1d(line(x), w1, padding=1),
            lambda x: F.conv1d(line(x), w1, stride=2),
            lambda x: F.conv2d(picture(x), w2, b),
            lambda x: F.conv_transpose2d(picture(x), w2.transpose(0, 1).contiguous()),
            lambda x: F.avg_pool1d(line(x), 2),
            lambda x: F.max_pool2d(picture(x), 2, 1),
            lambda x: F.group_norm(picture(x), 2),
            lambda x: F.adaptive_avg_pool1d(line(x), 3),
            lambda x: F.interpolate(picture(x), scale_factor=2),
            lambda x: F.interpolate(picture(x), size=(3, 3), mode="bilinear"),
            lambda x: F.conv1d(line(x), w1[:2, :1], groups=2),
            lambda x: F.unfold(picture(x), 2),
            lambda x: F.instance_norm(picture(x)),
            lambda x: F.pixel_shuffle(x.flatten()[:16].reshape(1, 4, 2, 2), 2),
            lambda x: F.pad(picture(x), (1, 1), mode="reflect"),
        ]
    )
    return lambda v: f(v[i])


@step
def attention(r, values):
    i = _pick(r, values, lambda x: x.size >= 12)
    if i is None:
        return None
    causal, shape = r.random() < 0.5, r.choice([(1, 1, 3, 4), (1, 2, 3, 2)])
    q = lambda x: x.flatten()[:12].reshape(shape)
    return lambda v: F.scaled_dot_product_attention(q(v[i]), q(td.sin(v[i])), q(v[i] * 0.5), is_causal=causal)


@step
def control(r, values):
    i = _pick(r, values)
    k = r.randrange(1, 4)
    f = r.choice(
        [
            lambda x: td.scan(lambda c, _: (td.tanh(c * 0.9 + 0.1), c), x, td.arange(k))[0],
            lambda x: td.while_loop(lambda j, c: j < k, lambda j, c: (j + 1, td.sin(c) + 0.1), (td.tensor(0), x))[1],
            lambda x: td.cond(td.tensor(k > 1), lambda x: x * 2, lambda x: x + 1, x),
            lambda x: td.checkpoint(lambda x: td.tanh(x) * x, x),
        ]
    )
    return lambda v: f(v[i])


@step
def write(r, values):
    i = _pick(r, values, lambda x: x.ndim >= 1 and x.shape[0] > 1)
    if i is None:
        return None
    key = r.choice([0, slice(1, None), -1])

    def f(v):
        made = v[i].clone()
        made[key] = td.tanh(made[key]) * 0.5
        made.mul_(1.5)
        return made

    return f


def make(seed: int):
    """(function of one list of tensors, its arguments)"""
    r = random.Random(seed)
    shapes = [r.choice([(3,), (2, 3), (4, 4), (2, 1, 3), (16,), (2, 3, 4)]) for _ in range(r.randint(1, 3))]
    rng = np.random.default_rng(seed)
    leaves = [td.tensor(rng.standard_normal(s)) for s in shapes]
    values, steps = list(leaves), []
    while len(steps) < r.randint(3, 9):
        f = STEPS[r.choice(list(STEPS))](r, values)
        if f is None:
            continue
        made = f(values)
        if made.size == 0 or made.size > 1024 or made.ndim > 5:
            continue
        steps.append(f)
        values.append(made)

    def function(*given):
        v = list(given)
        for f in steps:
            v.append(f(v))
        return sum((x * (1.0 + 0.1 * k)).sin().mean() for k, x in enumerate(v[len(given) :])), v[-1]

    return function, leaves


def close(what: str, expected, found):
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), rtol=RTOL, atol=ATOL, err_msg=what)


def gradients(function, leaves):
    given = [x.clone().requires_grad_() for x in leaves]
    loss, last = function(*given)
    grads = td.autograd.grad(loss, given, allow_unused=True)
    return [loss, last], [td.zeros_like(x) if g is None else g for x, g in zip(given, grads)]


def compare(seed: int):
    function, leaves = make(seed)
    eager, grads = gradients(function, leaves)
    rng = np.random.default_rng(seed + 1)
    tangents = [td.tensor(rng.standard_normal(x.shape)) for x in leaves]
    along = sum((g * t).sum() for g, t in zip(grads, tangents))

    compiled, compiled_grads = gradients(td.compile(function), leaves)
    close("compiled", eager, compiled)
    close("gradient, compiled", grads, compiled_grads)
    with contextlib.suppress(td.UnsupportedError, td.ValueRangeError):  # of what cannot be watched, or needs memory
        replayed = td.compile(function, replay=True)
        for k in range(3):
            close(f"replay {k}", eager, replayed(*leaves))
    kept, kept_grads = gradients(lambda *v: td.checkpoint(function, *v), leaves)
    close("checkpoint", eager, kept)
    close("gradient, checkpoint", grads, kept_grads)

    values, pushed = td.jvp(function, tuple(leaves), tuple(tangents))
    close("jvp, value", eager, values)
    close("jvp", [along], [pushed[0]])
    close("grad", grads, td.grad(lambda *v: function(*v)[0], argnums=tuple(range(len(leaves))))(*leaves))

    batch = [td.stack([x, x * 0.5 + 0.1, t]) for x, t in zip(leaves, tangents)]
    one_by_one = [function(*(b[k] for b in batch)) for k in range(3)]
    mapped = td.vmap(function)(*batch)
    close("vmap", [td.stack([o[j] for o in one_by_one]) for j in range(2)], mapped)
    per_example = td.vmap(td.grad(lambda *v: function(*v)[0], argnums=tuple(range(len(leaves)))))(*batch)
    each = [gradients(function, [b[k] for b in batch])[1] for k in range(3)]
    close("vmap of grad", [td.stack([e[j] for e in each]) for j in range(len(leaves))], per_example)

    def second(*v):
        g = td.grad(lambda *v: function(*v)[0], argnums=tuple(range(len(v))))(*v)
        return sum((a * t).sum() for a, t in zip(g, tangents))

    reverse = td.grad(second, argnums=tuple(range(len(leaves))))(*leaves)
    forward = td.jvp(
        td.grad(lambda *v: function(*v)[0], argnums=tuple(range(len(leaves)))), tuple(leaves), tuple(tangents)
    )[1]
    close("second derivative, forward over reverse", reverse, forward)
    if seed % 4 == 0:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "f.td")
            td.export.save(function, tuple(leaves), path)
            close("saved", eager, td.export.load(path)(*leaves))
