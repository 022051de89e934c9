"""Compiled functions called again and again while what surrounds them changes.

A call that comes often is compared with the last ones and not worked out (Note [Predicted calls]), so what may differ from one call
to the next is what this is about: modes, dtypes, layouts, arguments that are one tensor or look into the same memory, hooks
that come after a dozen calls, parameters that are replaced, exceptions in the middle, inputs written between forward and
backward, results that are held, other threads. A world does the same eagerly and compiled, in one of several ways, or batched by
td.autobatch; all that can be seen must be equal.
"""

from __future__ import annotations

import contextlib
import gc
import random
import threading

import numpy as np

import tandem as td
import tandem.torch as torch
from tandem import nn

F = nn.functional
WIDTH = 4
TOLERANCE = {td.float64: 1e-9, td.complex128: 1e-9, td.float32: 3e-5, td.float16: 2e-2, td.bfloat16: 1e-1}


class Stop(Exception):
    """What a function of the user's may raise in the middle."""


class Marked(torch.Tensor):
    """A subclass of the user's."""


class Double(td.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 + x * 0


class World:
    """State, a function that reads and writes it, and what happens around its calls."""

    def __init__(self, seed: int):
        r = random.Random(seed)
        td.manual_seed(seed)
        self.seed, self.dtype = seed, r.choice([td.float64, td.float64, td.float32])
        self.linear = nn.Linear(WIDTH, WIDTH).to(self.dtype)
        self.norm = r.choice([nn.LayerNorm(WIDTH), nn.BatchNorm1d(WIDTH), nn.RMSNorm(WIDTH)]).to(self.dtype)
        self.dropout = nn.Dropout(r.choice([0.0, 0.5]))
        self.embedding = nn.Embedding(6, WIDTH).to(self.dtype)
        self.model = nn.ModuleList([self.linear, self.norm, self.dropout, self.embedding])
        self.bias = td.randn(WIDTH, dtype=self.dtype, requires_grad=True)
        self.buffer = td.randn(3, WIDTH, dtype=self.dtype)
        self.ids = td.tensor([0, 5, 2])
        self.optimizer = r.choice(
            [
                lambda p: td.optim.SGD(p, lr=0.05, momentum=r.choice([0, 0.9])),
                lambda p: td.optim.Adam(p, lr=0.05),
                lambda p: td.optim.AdamW(p, lr=0.05),
            ]
        )(self.parameters())
        self.way = r.choice([*WAYS])
        steps = [s for s in STEPS if self.way != "replay" or s not in NOT_REPLAYED]
        self.program = [(r.choice(steps), r.random(), r.random(), r.randrange(2**30)) for _ in range(r.randrange(2, 9))]
        self.happenings = happenings(r)
        if self.way in ("rows", "scoped") or any(
            step is _batched for step, *_ in self.program
        ):  # what fails there has no values
            self.happenings = [h for h in self.happenings if h[0] != "stop"]
        self.kept: list = []
        self.log: list = []
        self.hooks: list = []
        self.stop_at, self.flag, self.number, self.axis = -1, False, 0.5, -1

    def parameters(self) -> list:
        return [*self.model.parameters(), self.bias]

    def forward(self, x, y):
        values = [x, y, x * self.number + y]
        for at, (step, a, b, seed) in enumerate(self.program):
            if at == self.stop_at:
                raise Stop(f"before {at}")
            values.append(step(self, values[int(a * len(values))], values[int(b * len(values))], seed))
        return values[-1], values[2:]

    def loss(self, values):
        return sum((td.tanh(v.float() if v.dtype.is_integer else v) ** 2).mean() for v in values)

    def learn(self, loss):
        if loss.requires_grad:
            loss.backward()

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def whole(self, x, y):
        out, values = self.forward(x, y)
        loss = self.loss(values)
        self.learn(loss)
        if self.flag:
            self.update()
        return out.detach() if self.way == "replay" else out, loss.detach()


# -- steps: of two values (n, 4), with numbers that are the same at every call


def pick(*choices):
    """A step that is one of these by its own number."""
    return lambda w, x, y, r: choices[r % len(choices)](w, x, y, r)


def one_of(r: int, *choices):
    return choices[r // 64 % len(choices)]()


def _write_own(w, x, y, r):
    made = x * 1.0
    one_of(
        r,
        lambda: made.add_(y.detach() if made.dtype == y.dtype else 1.0),
        lambda: made.mul_(w.number),
        lambda: made.tanh_(),
        lambda: made[:, 1:].mul_(0.5),
        lambda: made[0].fill_(2.0) if made.shape[0] else None,
        lambda: made.T.add_(1.0),
        lambda: made.view(-1)[::2].sub_(0.25),
        lambda: made.__setitem__((slice(None), 0), 3.0),
        lambda: made.copy_(made.flip(0)),
        lambda: made[..., :2].copy_(made[..., 2:] * 1.0),
    )
    return made * 1.5


def _write_state(w, x, y, r):
    with td.no_grad():
        one_of(
            r,
            lambda: w.buffer.mul_(0.9),
            lambda: w.buffer.add_(x.detach().sum(0).to(w.dtype) * 0.01),
            lambda: w.buffer[0].fill_(w.number),
            lambda: w.buffer[1:].add_(0.1),
            lambda: w.buffer.T.mul_(0.99),
            lambda: w.buffer.copy_(td.tanh(w.buffer)),
        )
    return x + w.buffer[0].to(x.dtype)


def _read(w, x, y, r):
    value = float(td.tanh(x.detach()).sum()) if x.numel() else 0.0
    w.log.append(value)
    return x * (2.0 if value > 0 else 0.5)


def _nested(w, x, y, r):
    return td.compile(lambda a, b: td.sin(a) * w.bias.to(a.dtype) + b)(x, y)


def _batched(w, x, y, r):
    with td.autobatch():
        rows = [td.tanh(row @ w.linear.weight.to(row.dtype)) for row in x.split(1, 0)] if x.shape[0] else [x]
        made = td.cat(rows, 0)
    return made + y


def _keep(w, x, y, r):
    made = td.sin(x) * y
    w.kept = [*w.kept[-2:], one_of(r, lambda: made, lambda: made.detach(), lambda: made[..., 0], lambda: x)]
    return made


def _hooked(w, x, y, r):
    made = x * 1.25
    if made.requires_grad and w.flag:
        made.register_hook(lambda g: g * 0.5)
    return td.tanh(made)


def _gradient(w, x, y, r):
    f = lambda v: (td.tanh(v) ** 2).sum()
    return td.grad(f)(x.detach() * 1.0) if not td.is_inference_mode_enabled() else x * 2


def _random(w, x, y, r):
    return one_of(
        r,
        lambda: F.dropout(x, 0.5),
        lambda: w.dropout(x),
        lambda: x + td.rand(x.shape, dtype=x.dtype),
        lambda: x + td.randn(WIDTH, dtype=x.dtype),
        lambda: x * td.bernoulli(td.full(x.shape, 0.5, dtype=x.dtype)),
        lambda: x + td.rand_like(x),
    )


def _modes(w, x, y, r):
    with one_of(r, td.no_grad, td.enable_grad, lambda: td.autocast(dtype=td.bfloat16), contextlib.nullcontext):
        made = (x.detach() if r % 3 == 0 else x) @ w.linear.weight.T.to(x.dtype)
    return made.to(x.dtype) + y * 0.5


def _changing(w, x, y, r):
    """Arguments that are no tensors, and that calls change."""
    return one_of(
        r,
        lambda: td.softmax(x, w.axis),
        lambda: x + x.sum(w.axis, keepdim=True),
        lambda: F.leaky_relu(x, w.number),
        lambda: x * w.number,
        lambda: w.number - x,
        lambda: td.where(x > 0, x, w.number),
        lambda: td.clamp(x, -w.number, w.number),
        lambda: td.full_like(x, w.number) + x,
        lambda: x**w.number if w.number in (2, 3) else td.abs(x) ** w.number,
        lambda: x.roll(1 if w.flag else 2, 0),
        lambda: td.cat([x, y][:: 1 if w.flag else -1], -1)[..., :WIDTH],
        lambda: x.reshape([-1, WIDTH]) if w.flag else x.view(x.shape),
        lambda: x[:, [0, 1, 2, 3] if w.flag else [3, 2, 1, 0]],
        lambda: td.cumsum(x, w.axis),
        lambda: x.flip([w.axis]),
        lambda: td.add(x, y, alpha=w.number),
        lambda: w.bias.to(x.dtype) + (x if w.flag else y),
    )


plain = pick(
    lambda w, x, y, r: td.tanh(x),
    lambda w, x, y, r: x + y,
    lambda w, x, y, r: x * y,
    lambda w, x, y, r: td.relu(x) - y,
    lambda w, x, y, r: td.maximum(x, y),
    lambda w, x, y, r: x - x.mean(-1, keepdim=True),
    lambda w, x, y, r: td.softmax(x, -1),
    lambda w, x, y, r: x.T.contiguous().T * 1.0,
    lambda w, x, y, r: td.cat([x, y], -1)[:, ::2],
    lambda w, x, y, r: td.where(x > y, x, y),
    lambda w, x, y, r: td.stack([x, y]).sum(0),
    lambda w, x, y, r: x @ (x.T @ y) * 0.1,
    lambda w, x, y, r: td.sort(x, -1)[0],
    lambda w, x, y, r: x.unsqueeze(0).expand(2, *x.shape).mean(0),
    lambda w, x, y, r: td.exp(-x.abs()),
    lambda w, x, y, r: x.chunk(2, -1)[0].repeat(1, 2),
    lambda w, x, y, r: x.clone(),
    lambda w, x, y, r: x.detach() + y,
)
modules = pick(
    lambda w, x, y, r: w.linear(x.to(w.dtype)).to(x.dtype),
    lambda w, x, y, r: w.norm(x.to(w.dtype)).to(x.dtype) if x.shape[0] > 1 else x,
    lambda w, x, y, r: x + w.embedding(w.ids).mean(0).to(x.dtype),
    lambda w, x, y, r: F.linear(x, w.linear.weight.to(x.dtype), w.bias.to(x.dtype)),
    lambda w, x, y, r: Double.apply(x),
    lambda w, x, y, r: td.remat(lambda v: td.tanh(v) * w.bias.to(v.dtype), x),
    lambda w, x, y, r: td.vmap(lambda v: td.tanh(v) * 2)(x),
)
STEPS = (
    [plain] * 6
    + [modules] * 4
    + [_changing] * 4
    + [
        _write_own,
        _write_own,
        _write_state,
        _read,
        _nested,
        _batched,
        _keep,
        _keep,
        _hooked,
        _gradient,
        _random,
        _random,
        _modes,
    ]
)
NOT_REPLAYED = {_read, _keep, _nested, _batched, _hooked}


# -- what happens around a call: name, and what it changes


def happenings(r: random.Random) -> list[tuple[str, int]]:
    """Runs of usual calls, long enough to be learned, with something else in between."""
    made: list[tuple[str, int]] = [("usual", 0)] * r.randrange(3, 7)
    while len(made) < 16:
        other = (r.choice([*HAPPENINGS]), r.randrange(2**30))
        made += [other] * r.choice([1, 1, 1, 2, 5]) + [("usual", 0)] * r.choice([0, 1, 1, 2, 4])
    return made


def data(w: World, number: int, dtype=None, n: int = 3):
    made = td.tensor(np.random.default_rng([w.seed, number]).normal(size=(n, WIDTH)))
    return made.to(dtype or w.dtype)


def _pair(w, number, dtype=None, n=3):
    return data(w, 2 * number, dtype, n), data(w, 2 * number + 1, dtype, n)


def _layout(w, number, r):
    x, y = _pair(w, number)
    wide = td.tensor(np.random.default_rng(number).normal(size=(6, 2 * WIDTH))).to(w.dtype)
    return r.choice(
        [
            lambda: x.T.contiguous().T,
            lambda: wide[::2, ::2],
            lambda: wide[1:4, 2:6],
            lambda: x[:1].expand(3, WIDTH),
            lambda: td.from_numpy(np.ascontiguousarray(x.numpy()[::-1])[::-1]),
            lambda: td.from_numpy(x.numpy()),
            lambda: frozen(x),
            lambda: wide[0, :WIDTH].expand(3, WIDTH),
            lambda: td.from_numpy(np.asfortranarray(x.numpy())),
        ]
    )(), y


def frozen(x):
    array = x.numpy().copy()
    array.flags.writeable = False
    return td.from_numpy(array)


def _alias(w, number, r):
    x, y = _pair(w, number)
    base = td.cat([x, y])
    return r.choice(
        [
            lambda: (x, x),
            lambda: (x, x[:]),
            lambda: (base[:3], base[3:]),
            lambda: (base[:3], base[1:4]),
            lambda: (base[:3], base[:3]),
            lambda: (x, x.detach()),
            lambda: (w.buffer, x),
            lambda: (w.buffer, w.buffer),
            lambda: (w.buffer[:], y),
            lambda: (x, w.bias.expand(3, WIDTH)),
            lambda: (x, w.linear.weight[:3]),
            lambda: (x.flip(0), x),
            lambda: shared(x),
            lambda: (w.kept[-1], y) if w.kept and w.kept[-1].shape == x.shape else (y, y),
        ]
    )()


def shared(x):
    array = x.numpy().copy()
    return td.from_numpy(array), td.from_numpy(array)


def _with_grad(w, number, r):
    x, y = _pair(w, number)
    return r.choice(
        [
            lambda: (x.requires_grad_(), y),
            lambda: (x, y.requires_grad_()),
            lambda: (x.requires_grad_() * 1.0, y),
            lambda: (x.requires_grad_(), x),
            lambda: (x.requires_grad_()[:], y),
        ]
    )()


def _size(w, number, r):
    return _pair(w, number, n=r.choice([5, 1, 2, 0, 3, 7]))


def _dtype(w, number, r):
    dtype = r.choice([td.float32, td.float64, td.float16, td.bfloat16])
    x, y = _pair(w, number, dtype)
    return (x, y) if r.random() < 0.7 else (x, y.to(w.dtype))


def _class(w, number, r):
    x, y = _pair(w, number)
    return (x.as_subclass(Marked), y) if r.random() < 0.5 else (x, y.as_subclass(Marked))


@contextlib.contextmanager
def default_dtype(dtype):
    before = td.get_default_dtype()
    td.set_default_dtype(dtype)
    try:
        yield
    finally:
        td.set_default_dtype(before)


MODES = [
    td.no_grad,
    td.inference_mode,
    lambda: td.autocast(dtype=td.bfloat16),
    td.enable_grad,
    lambda: default_dtype(td.float64),
    lambda: td.autograd.detect_anomaly(),
    lambda: default_dtype(td.float16),
]


def _replace(w, r):
    """State that is another object, has other hooks or wants no gradient any more."""

    def other_weight():
        w.linear.weight = nn.Parameter(w.linear.weight.detach() * 0.5)

    def other_bias():
        w.bias = (w.bias.detach() * 1.1).requires_grad_()

    def new_hook():
        w.hooks.append(
            r.choice(
                [
                    lambda: w.linear.weight.register_hook(lambda g: g * 0.5),
                    lambda: w.bias.register_hook(lambda g: g + 0.01),
                    lambda: w.linear.register_forward_hook(lambda m, i, o: o * 1.5),
                    lambda: w.linear.register_forward_pre_hook(lambda m, i: (i[0] + 1,)),
                    lambda: w.norm.register_forward_hook(lambda m, i, o: w.log.append(1.0)),
                    lambda: w.bias.register_post_accumulate_grad_hook(halve),
                    lambda: w.linear.register_full_backward_hook(lambda m, gi, go: w.log.append(2.0)),
                ]
            )()
        )

    def halve(p):
        p.grad.mul_(0.5)

    def no_hooks():
        for hook in w.hooks:
            hook.remove()
        w.hooks.clear()

    def frozen_weight():
        w.linear.weight.requires_grad_(not w.linear.weight.requires_grad)

    def write():
        with td.no_grad():
            r.choice([w.linear.weight, w.bias, w.buffer, w.embedding.weight]).mul_(0.9)

    def other_data():
        w.bias.data = td.tensor(np.linspace(-1, 1, WIDTH)).to(w.dtype)

    def strided_weight():
        w.linear.weight = nn.Parameter(w.linear.weight.detach().T.contiguous().T)

    def tied():
        w.linear.bias = w.bias if isinstance(w.bias, nn.Parameter) else nn.Parameter(w.bias.detach())

    def load():
        w.linear.load_state_dict({k: v * 0.9 for k, v in w.linear.state_dict().items()})

    def other_buffer():
        w.buffer = r.choice([w.buffer.clone(), w.buffer.T.contiguous().T, td.cat([w.buffer, w.buffer])[1:4]])

    def drop():
        w.kept.clear()
        gc.collect()

    def rate():
        w.optimizer.param_groups[0]["lr"] = r.choice([0.01, 0.1, 1])

    def grads():
        for p in w.parameters():
            p.grad = r.choice([None, td.zeros_like(p), td.ones_like(p)])

    def forget():
        td.Generator().manual_seed(3)
        td.manual_seed(r.randrange(100))

    r.choice(
        [
            other_weight,
            other_bias,
            new_hook,
            new_hook,
            new_hook,
            no_hooks,
            frozen_weight,
            write,
            other_data,
            strided_weight,
            tied,
            load,
            other_buffer,
            drop,
            rate,
            grads,
            forget,
        ]
    )()


def _attribute(w, r):
    """Numbers and flags that the function reads."""
    name, value = r.choice(
        [
            ("flag", True),
            ("flag", False),
            ("number", 2),
            ("number", 2.0),
            ("number", True),
            ("number", np.float32(0.3)),
            ("number", 3),
            ("number", np.float64(0.3)),
            ("number", 0.75),
            ("number", 0),
            ("number", -0.0),
            ("number", 1e10),
            ("axis", 0),
            ("axis", 1),
            ("axis", -1),
            ("axis", np.int64(0)),
            ("number", td.tensor(0.5, dtype=td.float64)),
            ("number", 10**12),
        ]
    )
    setattr(w, name, value)


HAPPENINGS = {
    "layout": _layout,
    "alias": _alias,
    "grad": _with_grad,
    "size": _size,
    "dtype": _dtype,
    "class": _class,
    "mode": None,
    "eval": None,
    "train": None,
    "replace": None,
    "attribute": None,
    "stop": None,
    "write between": None,
    "thread": None,
    "flag": None,
    "held": None,
}


# -- calls


def arguments(w: World, number: int, name: str, r: random.Random):
    make = HAPPENINGS.get(name)
    return make(w, number, r) if make else _pair(w, number)


class Runner:
    """Calls a world's function: eagerly, or compiled in the world's way."""

    def __init__(self, w: World, compiled: bool):
        self.w = w
        wrap = (lambda f, **o: td.compile(f, recompile_limit=64, **o)) if compiled else (lambda f, **o: f)
        self.call = (
            _batched_rows(w, td.autobatch if compiled else lambda f: f) if w.way == "rows" else WAYS[w.way](w, wrap)
        )

    def run(self, number: int, name: str, seed: int, call=None) -> list:
        w, r = self.w, random.Random(seed)
        if name == "replace":
            _replace(w, r)
        elif name == "attribute":
            _attribute(w, r)
        elif name == "flag":
            w.flag = not w.flag
        elif name in ("eval", "train"):
            w.model.train(name == "train")
        w.stop_at = r.randrange(len(w.program)) if name == "stop" else -1
        with contextlib.ExitStack() as stack:
            if name == "mode":
                stack.enter_context(r.choice(MODES)())
            try:
                x, y = arguments(w, number, name, r)
                if name == "write between":
                    return [*self.between(x, y, r), x, y]
                if name == "thread":
                    return in_thread(lambda: [*self.call(x, y), x, y])
                return [*self.call(x, y), x, y, x.grad if x.is_leaf else None]
            except (td.TandemError, Stop, TypeError, ValueError, RuntimeError) as error:
                return [f"{type(error).__name__}: {error}"]

    def between(self, x, y, r):
        """An input is written after the call that used it."""
        results = self.call(x, y)
        with td.no_grad():
            r.choice(
                [
                    lambda: x.mul_(2),
                    lambda: y.add_(1),
                    lambda: self.w.bias.mul_(0.5),
                    lambda: self.w.buffer.add_(1),
                    lambda: results[0].detach().mul_(0.5),
                ]
            )()
        if results[0].requires_grad:
            results[0].sum().backward()
        return results


def in_thread(call):
    made: list = []

    def target():
        try:
            made.append(call())
        except Exception as error:
            made.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    if isinstance(made[0], Exception):
        raise made[0]
    return made[0]


def _one(w, wrap):
    return wrap(w.whole)


def _replayed(w, wrap):
    return wrap(w.whole, replay=True)


def _parts(w, wrap):
    forward, update = wrap(w.forward), wrap(w.update)

    def call(x, y):
        out, values = forward(x, y)
        loss = w.loss(values)
        w.learn(loss)
        if w.flag:
            update()
        return out, loss.detach()

    return call


def _late(w, wrap):
    """Backward of several calls, in another order."""
    forward, waiting = wrap(w.forward), []

    def call(x, y):
        out, values = forward(x, y)
        waiting.append(w.loss(values))
        if len(waiting) == 3:
            w.learn(waiting.pop(1))
            w.learn(waiting.pop())
            waiting.clear()
        return out, waiting[-1].detach() if waiting else out

    return call


def _scoped(w, wrap):
    """Compiled functions in an autobatch scope in a compiled function."""
    inner = wrap(w.forward)

    def middle(x, y):
        with td.autobatch():
            out, values = inner(x, y)
            other = td.tanh(out) * 2
        loss = w.loss(values) + other.mean()
        w.learn(loss)
        return out, loss.detach()

    return wrap(middle)


def _whole_program(w, wrap):
    return wrap(w.whole, whole=True) if not _ends_programs(w) else wrap(w.whole)


def _ends_programs(w):
    return any(step in (_read,) for step, *_ in w.program)


def _batched_rows(w, wrap):
    """Not compiled, but each row an example of td.autobatch."""

    def rows(x, y):
        made = [w.forward(x[i : i + 1], y[i : i + 1]) for i in range(x.shape[0])] or [w.forward(x, y)]
        loss = sum(w.loss(values) for _, values in made)
        if w.number == 3:
            w.learn(loss)
        return td.cat([out for out, _ in made]), loss

    batched = wrap(rows)

    def call(x, y):
        out, loss = batched(x, y)
        if w.number != 3:
            w.learn(loss)
        if w.flag:
            w.update()
        return out, loss.detach()

    return call


WAYS = {
    "rows": _batched_rows,
    "one": _one,
    "replay": _replayed,
    "parts": _parts,
    "late": _late,
    "scoped": _scoped,
    "whole": _whole_program,
}


def plain_value(t):
    if not isinstance(t, td.Tensor):
        return t
    return (
        t.detach().to(td.float32).numpy().copy() if t.dtype in (td.float16, td.bfloat16) else t.detach().numpy().copy()
    )


def seen(w: World, results: list) -> list:
    """All that a user could look at after a call."""
    optimizer = [v for p in w.parameters() for _, v in sorted(w.optimizer.state.get(p, {}).items())]
    tensors = [
        *results,
        *w.parameters(),
        *(p.grad for p in w.parameters()),
        w.buffer,
        *w.model.buffers(),
        *w.kept,
        *optimizer,
    ]
    kinds = [
        (type(t).__name__, t.dtype.name, tuple(t.shape), t.requires_grad) for t in tensors if isinstance(t, td.Tensor)
    ]
    return [kinds, *map(plain_value, tensors), np.array(w.log)]


def tolerance(results: list, w: World) -> float:
    dtypes = [t.dtype for t in results if isinstance(t, td.Tensor)]
    return max([TOLERANCE.get(d, 0.0) for d in [*dtypes, w.dtype]])


def play(seed: int, compiled: bool, first: int, last: int):
    w = World(seed)
    runner = Runner(w, compiled)
    td.manual_seed(seed + 1)
    outcome = []
    for number, (name, chance) in enumerate(w.happenings[first:last]):
        results = runner.run(number, name, chance)
        loose = w.dtype if name != "mode" else None
        outcome.append((name, tolerance(results, w) if loose else 1e-1, [*seen(w, results), plain_value(td.rand(2))]))
    return w, outcome


def compare(seed: int, first: int = 0, last: int | None = None):
    """Raises AssertionError where the world with this seed does something else when compiled."""
    (w, eager), (_, compiled) = (play(seed, c, first, last) for c in (False, True))
    rough = 0.0
    for number, ((name, loose, a), (_, _, b)) in enumerate(zip(eager, compiled, strict=True)):
        rough = max(rough, loose)  # state carries it on
        where = f"seed {seed}, {w.way}, call {number}: {name}"
        texts = [item for item in b if isinstance(item, str)]
        if w.way == "replay" and any("cannot be replayed" in text for text in texts):
            return  # what it did until then is done
        assert len(a) == len(b), f"{where}: {texts or [item for item in a if isinstance(item, str)]} {a[0]} {b[0]}"
        for position, (one, other) in enumerate(zip(a, b, strict=True)):
            if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
                np.testing.assert_allclose(other, one, rtol=rough, atol=rough, err_msg=f"{where}, item {position}")
            else:
                texts = [_first_line(v) for v in (one, other)]
                assert texts[0] == texts[1], f"{where}, item {position}:\n{one}\n{other}"


def _first_line(item) -> str:
    """Of errors: of several records whose backward has run, another one may be met first."""
    text = str(item).split("\n")[0]
    return "freed by the first backward" if "freed by the first backward" in text else text
