"""Random programs: the same steps run eagerly and compiled, forward and backward, with views and writes in place."""

from __future__ import annotations

import random

import tandem as td


def step(r: random.Random, values: list):
    """One line of a program: appends to values, or writes into one of them."""
    x = r.choice(values)
    kind = r.choice(["unary", "binary", "movement", "index", "reduce", "write", "join", "softmax", "matmul", "part"])
    if kind == "unary":
        values.append(r.choice([td.tanh, td.exp, td.relu, td.abs, lambda t: t * 0.5 - 1, lambda t: t**2])(td.tanh(x)))
    elif kind == "binary":
        y = r.choice(values)
        try:
            values.append(r.choice([td.add, td.multiply, td.maximum, td.subtract])(x, y))
        except td.ShapeError:
            values.append(x + y.sum())
    elif kind == "movement":
        ways = [lambda t: t.flatten(), lambda t: t.unsqueeze(0)]
        if x.ndim:
            ways += [
                lambda t: t.flip(0),
                lambda t: t.roll(1, 0),
                lambda t: td.pad(t, (1, 0)),
                lambda t: t.expand((2, *t.shape)),
            ]
        if x.ndim > 1:
            ways += [
                lambda t: t.transpose(0, -1),
                lambda t: t.permute(tuple(range(t.ndim))[::-1]),
                lambda t: t.permute(tuple(range(1, t.ndim)) + (0,)),
            ]
        values.append(r.choice(ways)(x))
    elif kind == "index" and x.ndim and x.shape[0]:
        n = x.shape[0]
        keys = [
            r.randrange(n),
            slice(r.randrange(n), None),
            slice(None, None, -1),
            [r.randrange(n), 0],
            (Ellipsis, None),
        ]
        values.append(x[r.choice(keys)])
    elif kind == "part" and x.ndim and x.shape[0]:  # rows of a size that is computed, broadcast where there is one
        n = x.shape[0]
        rows = x[r.choice([slice(n - 1, None), slice(None, 1), slice(r.randrange(n), None), slice(None, None, n)])]
        values.append(x * rows if rows.shape[0] == 1 else rows)
    elif kind == "reduce":
        axis = r.choice([None, *range(x.ndim)])
        values.append(r.choice([td.sum, td.mean])(x, axis=axis))
    elif kind == "softmax" and x.ndim:
        values.append(td.softmax(x, -1))
    elif kind == "join" and x.ndim:
        values.append(td.concat([x, x * 2], r.randrange(x.ndim)))
    elif kind == "matmul" and x.ndim == 2:
        values.append(td.tanh(x @ x.T))
    elif kind == "write":
        y = x * 1.0  # something of our own to write into
        if y.ndim and y.shape[0]:
            if r.random() < 0.5:
                y[r.randrange(y.shape[0])] = r.choice([0.5, x.mean()])
            else:
                view = y[r.randrange(y.shape[0]) :]
                view *= r.choice([2.0, x.sum()])
        else:
            y += 1
        values.append(y)
    if values[-1].size > 400 or values[-1].ndim > 5:
        values[-1] = values[-1].mean()


def loss_of(seed: int, leaves: list):
    """What the program with this seed computes."""
    r = random.Random(seed)
    values = list(leaves)
    for _ in range(r.randrange(2, 9)):
        step(r, values)
    loss = sum((td.tanh(v) * (i + 1)).sum() for i, v in enumerate(values[-3:]))
    return loss + sum((leaf * leaf).sum() for leaf in leaves)  # every leaf takes part


def run(seed: int, leaves: list):
    """(result, gradients of the leaves) of the program with this seed."""
    loss = loss_of(seed, leaves)
    return loss, td.autograd.grad(loss, leaves)


def run_examples(seed: int, examples: list[list]):
    """Losses of several examples, which mostly run the program with this seed, and gradients of all leaves. Two share their
    leaves, and values are read on the way."""
    r = random.Random(seed)
    losses = []
    for k, leaves in enumerate(examples):
        losses.append(loss_of(seed + (k == 3), leaves))
        if r.random() < 0.2:
            losses.append(losses[-1] * float(losses[r.randrange(len(losses))].tanh()))
    losses.append(loss_of(seed, [td.tanh(leaf) for leaf in examples[0]]))
    return losses, td.autograd.grad(sum(losses), [leaf for leaves in examples for leaf in leaves])


def make_examples(seed: int) -> list[list]:
    return [[leaf.detach().mul(k + 1.0).requires_grad_() for leaf in make_leaves(seed)] for k in range(4)]


def make_leaves(seed: int) -> list:
    r = random.Random(seed)
    shapes = [(3,), (2, 3), (3, 2), (1, 3), (), (4,), (2, 2, 3)]
    return [td.tensor(_numbers(r, s), dtype=td.float64, requires_grad=True) for s in r.sample(shapes, 2)]


def _numbers(r: random.Random, shape):
    if not shape:
        return r.uniform(-1, 1)
    return [_numbers(r, shape[1:]) for _ in range(shape[0])]
