"""Random machines: state that lives across calls, and functions that read and write it in every way we could think of.

A machine has parameters with an optimiser, buffers, tensors that look into other tensors' memory and one that shares a NumPy
array's. A call does what a seed says: operators, writes through views, branches on values, loops, random numbers, gradients,
optimiser steps, bad indices that are caught, things kept for the next call. The same machine runs eagerly and compiled, on batches
of changing sizes; what it returns, what it holds and what it was told by errors must be the same after every call.
"""

from __future__ import annotations

import random

import numpy as np

import tandem as td

OPTIMIZERS = [
    lambda p: td.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    lambda p: td.optim.Adam(p, lr=0.05),
    lambda p: td.optim.AdamW(p, lr=0.05, amsgrad=True),
    lambda p: td.optim.RMSprop(p, lr=0.01, momentum=0.5),
    lambda p: td.optim.Adagrad(p, lr=0.05),
]
BATCHES = [3, 3, 5, 1, 0, 4, 3, 1]


class Machine:
    def __init__(self, seed: int):
        r = random.Random(seed)
        td.manual_seed(seed)
        self.seed = seed
        self.weight = td.randn(4, 4, dtype=td.float64, requires_grad=True)
        self.bias = td.randn(4, dtype=td.float64, requires_grad=True)
        self.optimizer = r.choice(OPTIMIZERS)([self.weight, self.bias])
        self.buffer = td.randn(6, 4, dtype=td.float64)
        self.part = self.buffer[1:4]
        self.turned = self.buffer.T
        self.array = np.arange(4.0)
        self.shared = td.from_numpy(self.array)
        self.count = td.tensor(0)
        self.kept: list = []
        self.log: list = []
        self.calls = 0

    def state(self) -> list:
        optimizer = [v for s in self.optimizer.state.values() for _, v in sorted(s.items())]
        tensors = [self.weight, self.bias, self.weight.grad, self.bias.grad, self.buffer, self.part, self.turned, self.shared,
                   self.count, *self.kept, *optimizer]  # fmt: skip
        return [plain(t) for t in tensors] + [self.array.copy(), list(self.log)]

    def call(self, x, rate):
        """One call. What it does depends on the seed, on how often it was called (a little) and on values."""
        r = random.Random(self.seed * 31 + (self.calls // 2 if self.seed % 3 == 0 else 0))
        self.calls += 1
        values = [x, x @ self.weight + self.bias, self.buffer[0] * 1.0]
        for _ in range(r.randrange(3, 12)):
            try:
                r.choice(STEPS)(self, r, values, rate)
            except td.TandemError as error:
                self.log.append(str(error))
            if values[-1].numel() > 600 or values[-1].ndim > 4:
                values[-1] = td.tanh(values[-1]).mean()
        return [td.tanh(v) for v in values[-3:]]


def plain(t):
    return t.detach().numpy().copy() if isinstance(t, td.Tensor) else t


def unary(m, r, values, rate):
    x = r.choice(values)
    f = r.choice(
        [td.tanh, td.sin, td.relu, lambda t: t * rate, lambda t: t + 1, lambda t: td.softmax(t, -1) if t.ndim else t]
    )
    values.append(f(td.tanh(x)))


def binary(m, r, values, rate):
    x, y = r.choice(values), r.choice([*values, m.bias, m.shared, m.buffer, m.part])
    values.append(r.choice([td.add, td.multiply, td.maximum])(x, y))


def move(m, r, values, rate):
    x = r.choice([*values, m.buffer, m.part])
    ways = [lambda t: t.reshape(-1), lambda t: t.flip(0), lambda t: t[None], lambda t: t.sum(0), lambda t: t.mean(-1),
            lambda t: t[..., 1:], lambda t: t.mT, lambda t: td.cat([t, t * 2], 0), lambda t: t[-1],
            lambda t: t.expand(2, *t.shape)]  # fmt: skip
    values.append(r.choice(ways)(x))


def write(m, r, values, rate):
    """Into state or a value, whole or through a view."""
    target = r.choice([m.buffer, m.part, m.turned, m.shared, r.choice(values), r.choice(values).detach() * 1.0])
    amount = r.choice([rate, 2, r.choice(values).detach().mean(), r.choice(values).detach().sum()])
    view = r.choice([
        lambda t: t, lambda t: t[0], lambda t: t[1:], lambda t: t.T, lambda t: t.reshape(-1), lambda t: t[..., ::2],
        lambda t: t.detach(), lambda t: t.diagonal(), lambda t: t.view(-1),
    ])(target)  # fmt: skip
    r.choice([
        lambda v: v.add_(amount), lambda v: v.mul_(0.5), lambda v: v.copy_(v.flip(0)), lambda v: v.fill_(rate),
        lambda v: v.sub_(v.mean()), lambda v: v.clamp_(-1, 1), lambda v: v.tanh_(),
    ])(view)  # fmt: skip
    values.append(target * 1.0)


def assign(m, r, values, rate):
    target = r.choice([m.buffer, m.part, m.shared, r.choice(values) * 1.0])
    key = r.choice([0, slice(1, None), slice(None, None, 2), [0, 1], (Ellipsis, 0)])
    value = r.choice([rate, 3.0, td.tanh(r.choice(values)).mean()])
    if r.random() < 0.5:
        target[key] = value if target.requires_grad or not isinstance(value, td.Tensor) else value.detach()
    else:
        target[key] += 1.5
    values.append(target * 1.0)


def branch(m, r, values, rate):
    x = r.choice(values)
    if x.sum() > 0:
        values.append(x * 2)
        m.count.add_(1)
    elif r.random() < 0.5:
        values.append(x - 1)
    else:
        m.buffer.mul_(0.9)
        values.append(x.abs())


def loop(m, r, values, rate):
    x = td.tanh(r.choice(values)).square().sum() * 10
    turns = 0
    while x > 1 and turns < 6:
        x = x / 2
        turns += 1
    m.log.append(turns)
    values.append(x)


def read(m, r, values, rate):
    x = r.choice([*values, m.buffer, m.shared])
    m.log.append(round(float(x.detach().mean()) if x.numel() else 0.0, 9))
    values.append(x + round(m.log[-1], 3))


def chance(m, r, values, rate):
    x = r.choice(values)
    values.append(r.choice([
        lambda: td.nn.functional.dropout(x, 0.5), lambda: x + td.rand(x.shape, dtype=td.float64),
        lambda: x * td.randn(1, dtype=td.float64),
    ])())  # fmt: skip


def learn(m, r, values, rate):
    loss = sum(td.tanh(v).square().sum() for v in values[-3:]) + (m.weight**2).mean() + (m.bias**2).mean()
    loss.backward()
    how = r.randrange(4)
    if how == 0 and m.weight.grad.norm() > 1:
        m.weight.grad.mul_(1 / m.weight.grad.norm())
    if how < 3:
        m.optimizer.param_groups[0]["lr"] = rate
        m.optimizer.step()
        m.optimizer.zero_grad(set_to_none=how != 1)
    values[:] = [v.detach() for v in values]
    values.append(values[0] @ m.weight)


def keep(m, r, values, rate):
    m.kept = [*m.kept[-2:], r.choice([*values, m.part[0], m.buffer[1:2], values[-1][..., :1]]).detach()]
    values.append(m.kept[0] * 2.0)


def lookup(m, r, values, rate):
    """Indices that are data, one of them out of range, or computed: then an error would come when the program runs, not here."""
    i = r.choice(
        [(m.count % 6)[None], td.tensor([0, 2]), (m.shared * 0).to(td.int64) + 1, td.tensor([r.choice([5, 11])])]
    )
    values.append(m.buffer[i])
    m.count.add_(1)


def structured(m, r, values, rate):
    x = td.tanh(r.choice(values)).sum()
    way = r.randrange(3)
    if way == 0:
        values.append(td.cond(x > 0, lambda: x * 2, lambda: x - rate))
    elif way == 1:
        values.append(
            td.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, td.tanh(y + rate)), (td.tensor(0), x.detach()))[1]
        )
    else:
        values.append(td.scan(lambda c, v: (c * 0.5 + v.sum(), c), x.detach(), m.buffer)[1])


STEPS = [
    unary,
    unary,
    binary,
    binary,
    move,
    move,
    write,
    write,
    assign,
    branch,
    loop,
    read,
    chance,
    learn,
    learn,
    keep,
    lookup,
    structured,
]


def compare(seed: int, calls: int = 8):
    """Raises AssertionError where the machine with this seed does something else when compiled."""
    outcomes = []
    for compiled in (False, True):
        machine = Machine(seed)
        call = td.compile(machine.call) if compiled else machine.call
        r = random.Random(seed + 1)
        steps = []
        td.manual_seed(seed)
        for _ in range(calls):
            x = td.randn(r.choice(BATCHES) if seed % 2 else 3, 4, dtype=td.float64)
            try:
                results = [plain(v) for v in call(x, r.choice([0.1, 0.2, 0.01, 1]))]
            except td.TandemError as error:
                results = [str(error)]
            steps.append([*results, *machine.state(), plain(td.rand(1))])
        outcomes.append(steps)
    for number, (eager, other) in enumerate(zip(*outcomes, strict=True)):
        assert len(eager) == len(other), f"seed {seed}, call {number}: {eager} {other}"
        for position, (a, b) in enumerate(zip(eager, other, strict=True)):
            where = f"seed {seed}, call {number}, item {position}"
            if isinstance(a, np.ndarray):
                np.testing.assert_allclose(b, a, rtol=1e-7, atol=1e-9, err_msg=where)
            else:
                assert _texts(a) == _texts(b), f"{where}: {a} {b}"


def _texts(item):
    """Comparable: floats rounded, NaN equal to NaN."""
    return [f"{v:.6f}" if isinstance(v, float) else v for v in item] if isinstance(item, list) else item


if __name__ == "__main__":
    import sys
    import traceback
    import warnings

    warnings.simplefilter("error", td.errors.CompileWarning)
    first, last = int(sys.argv[1]), int(sys.argv[2])
    bad = 0
    for seed in range(first, last):
        try:
            compare(seed)
        except Exception as error:
            bad += 1
            print("SEED", seed, type(error).__name__, str(error)[:600].replace("\n", " | "), flush=True)
            if not isinstance(error, AssertionError):
                traceback.print_exc(limit=-4)
    print(last - first, "machines,", bad, "differ")
