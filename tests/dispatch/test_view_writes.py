"""Writes through views in functions that are only described (vmap, checkpoint, jvp, export) and in compiled ones: as eagerly."""

import random

import numpy as np
import pytest

import tandem as td

MODES = {
    "compiled": lambda f, x, w: td.compile(f)(x, w),
    "checkpoint": lambda f, x, w: td.utils.checkpoint.checkpoint(f, x, w, use_reentrant=False),
    "vmap": lambda f, x, w: td.vmap(f, in_dims=(0, None))(x[None], w)[0],
    "grad in vmap": lambda f, x, w: _from_gradients(f, x, w),
    "export": lambda f, x, w: td.export.freeze(f, (x, w), dynamic=False)(x, w),
}


def _from_gradients(f, x, w):
    """A function of x and w with the gradients that vmap finds, so that all modes are compared alike."""
    gx, gw = td.vmap(td.grad(f, argnums=(0, 1)), in_dims=(0, None))(x.detach()[None], w.detach())
    value = f(x.detach(), w.detach())
    return value + ((x - x.detach()) * gx[0]).sum() + ((w - w.detach()) * gw[0]).sum()


def run(f, mode=None):
    rng = np.random.default_rng(1)
    x, w = (td.tensor(rng.normal(size=s), requires_grad=True) for s in ((4, 6), (3,)))
    y = f(x, w) if mode is None else MODES[mode](f, x, w)
    if mode == "export":
        return float(y), None, None
    y.backward()
    return float(y), *(np.zeros(t.shape) if t.grad is None else t.grad.numpy() for t in (x, w))


def agree(f, mode):
    for found, expected in zip(run(f, mode), run(f), strict=True):
        if found is not None:
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def part(x, w):
    out = td.zeros(4, 8, dtype=x.dtype)
    out[:, :6] = x * w[0]
    return (out**2).sum()


def shifted(x, w):
    out = td.zeros_like(x)
    out[1:] = x[:-1]
    out += w[1]
    return (out**2).sum()


def uninitialised(x, w):
    out = td.empty(4, 12, dtype=x.dtype)
    out[:, ::2] = x
    out[:, 1::2] = w[0]
    return (out * out).sum()


def complex_half(x, w):
    out = td.zeros(4, 6, dtype=td.complex128)
    out[:, :3] = x[:, :3]
    out.imag[:, 1:] = w.sum()
    return (out.abs() ** 2).sum()


def view_of_view(x, w):
    h = x * 1
    row = h[1]
    row[::2].mul_(w[0])
    return (h * row.sum()).sum()


def older_view(x, w):
    h = x * w[2]
    row, column = h[0], h[:, 0]
    h.add_(1)
    column.mul_(2)
    return (row * row).sum() + (h * column.sum()).sum()


def transposed(x, w):
    h = (x * w[0]).t()
    h[2:4, 1] = w[1]
    return (h**3).sum()


def diagonal(x, w):
    h = x * 1
    h.diagonal().mul_(w[0])
    return (h**2).sum()


def flat(x, w):
    h = x * 1
    h.view(-1)[5:9].copy_(w[0] * td.arange(4, dtype=x.dtype))
    h.view(2, 12)[1, 3:].add_(w[1])
    return (h**2).sum()


def constants(x, w):
    h = x * w[0]
    h[0].fill_(3)
    h[:, 1] = 0
    return (h**2).sum()


def scatters(x, w):
    y = td.slice_scatter(x, w[None, :].expand(4, 3), 1, 1, 4)
    return (td.select_scatter(y, w.sum() * td.ones(6, dtype=x.dtype), 0, 2) ** 2).sum()


PROGRAMS = [
    part,
    shifted,
    uninitialised,
    complex_half,
    view_of_view,
    older_view,
    transposed,
    diagonal,
    flat,
    constants,
    scatters,
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_as_eagerly(f, mode):
    agree(f, mode)


def test_one_program_where_the_base_is_small_or_much_of_it_is_written():
    f = td.compile(lambda x: part(x, td.ones(3)))
    f(td.ones(4, 6))
    assert str(f.explain()).count("ends where") == 1


def test_large_bases_are_written_in_memory():
    def f(x):
        h = x * 2
        h[0] = 1
        return h

    x = td.ones(300, 1000)
    assert float(td.compile(f)(x).sum()) == 299 * 2000 + 1000


def test_filling_bit_by_bit_is_not_quadratic():
    def f(x):
        out = td.empty(20, 6)
        for i in range(20):
            out[i] = x * i
        return out

    assert td.compile(f)(td.ones(6)).sum(1).tolist() == [6.0 * i for i in range(20)]


def random_program(seed):
    def f(x, w):
        rng = random.Random(seed)
        h = td.tanh(x * w.sum()) * 1 if rng.random() < 0.5 else td.zeros_like(x) + x.mean()
        older = []
        for _ in range(rng.randint(1, 4)):
            v = h
            for _ in range(rng.randint(1, 3)):
                v = random_view(rng, v)
            if older and rng.random() < 0.3:
                v = rng.choice(older)
            elif rng.random() < 0.4:
                older.append(v)
            source = x.mean() * w[0] + rng.random()
            match rng.randrange(4):
                case 0:
                    v.add_(w.sum(), alpha=0.5)
                case 1:
                    v.copy_(source * td.arange(v.shape[-1], dtype=x.dtype) if v.ndim else source)
                case 2:
                    v.fill_(0.3)
                case 3:
                    v.sub_(source)
            if rng.random() < 0.3:
                h.add_(0.1)
        return (h * h).sum() + sum((v.sum() for v in older), start=h[1].sum())

    return f


def random_view(rng, t):
    if t.ndim == 0:
        return t.view(1)
    axis = rng.randrange(t.ndim)
    n = t.shape[axis]
    match rng.randrange(6):
        case 0:
            return t.narrow(axis, rng.randrange(n), 1)
        case 1:
            return t.select(axis, rng.randrange(n))
        case 2:
            return t[(slice(None),) * axis + (slice(rng.randrange(2) if n > 1 else 0, None, 2),)]
        case 3:
            return t.transpose(axis, (axis + 1) % t.ndim)
        case 4:
            return t.view(-1) if t.is_contiguous() else t.unsqueeze(axis)
        case _:
            return t.diagonal() if t.ndim == 2 else t


@pytest.mark.parametrize("mode", MODES)
def test_random_programs(mode):
    for seed in range(12):
        agree(random_program(seed), mode)


def test_random_programs_with_calls_that_are_predicted():
    for seed in range(8):
        agrees_again(seed)


def agrees_again(seed):
    """Compiled calls with gradients, again and again, as eagerly. How many of them were predicted."""

    def step(x, w):
        x.grad = w.grad = None
        value = random_program(seed)(x, w)
        value.backward()
        return value.detach(), x.grad, w.grad

    compiled, rng = td.compile(step), np.random.default_rng(1)
    for number in range(5):
        x, w = (td.tensor(rng.normal(size=s), requires_grad=True) for s in ((4, 6), (3,)))
        expected = [None if t is None else t.numpy() for t in step(x, w)]
        for found, wanted in zip(compiled(x, w), expected, strict=True):
            assert (found is None) == (wanted is None)
            if found is not None:
                np.testing.assert_allclose(
                    found.numpy(), wanted, rtol=1e-9, atol=1e-9, err_msg=f"{seed}, call {number}"
                )
    return compiled._programs.num_predicted


@pytest.mark.parametrize("mode", ["compiled", "vmap"])
def test_nothing_is_written_where_there_is_nothing(mode):
    def empty(x, w):
        h = x[:, :0].reshape(2, 0, 3) * w
        h[:1, :, ::2].add_(w[0])
        return h.sum() + x.sum()

    agree(empty, mode)


def overlapping(t):
    """Views in which several elements lie in one place."""
    yield t[:1].expand(3, 4)
    yield t[0, :1].expand(4)
    yield t[:, :1].expand(3, 4)
    yield t.view(-1)[4:5].expand(2, 2)


WRITES = [
    lambda v: v.add_(1),
    lambda v: v.fill_(2.0),
    lambda v: v.copy_(td.ones_like(v)),
    lambda v: v.__setitem__(slice(None), 3.0),
]


@pytest.mark.parametrize("mode", ["compiled", "checkpoint", "vmap"])
@pytest.mark.parametrize("write", WRITES, ids=["add_", "fill_", "copy_", "setitem"])
def test_views_with_several_elements_in_one_place_are_refused_as_eagerly(mode, write):
    for number in range(4):

        def f(x, w, number=number):
            h = x[:3, :4] * w[0]
            write(list(overlapping(h))[number])
            return h.sum()

        errors = []
        for m in (None, mode):
            with pytest.raises(td.ValueRangeError, match="share one memory location") as caught:
                run(f, m)
            errors.append(str(caught.value).splitlines()[:2])
        assert errors[0] == errors[1]
