"""td.autobatch: gradients of tensors that somebody holds, asked for after what takes them has run."""

import contextlib

import numpy as np
import pytest

import tandem as td
from tandem import nn

LENGTHS = (3, 1, 4, 4, 2)


def run(batched: bool, look):
    """look(loss, states, views, parameters) -> gradients."""
    td.manual_seed(0)
    cell, head = nn.GRUCell(2, 4).double(), nn.Linear(2, 3).double()
    words = [td.randn(n, 2, dtype=td.float64) for n in LENGTHS]
    states, views = [], []
    with td.autobatch() if batched else contextlib.nullcontext():
        total = 0.0
        for sentence in words:
            h = None
            for word in sentence:
                h = cell(word, h)
                states.append(h)
                views.append(h[1:3])
                total = total + (head(views[-1]) ** 2).sum() + h[3] * h[0]
        total.item()  # everything has run
        return look(total, states, views, [*cell.parameters(), *head.parameters()])


def of_parameters(loss, states, views, parameters):
    return td.autograd.grad(loss, parameters)


def of_states(loss, states, views, parameters):
    return td.autograd.grad(loss, [states[0], states[5], *parameters, states[-1]])


def of_views(loss, states, views, parameters):
    return td.autograd.grad(loss, [views[1], states[1], views[7], *parameters])


def one_after_the_other(loss, states, views, parameters):
    found = td.autograd.grad(loss, parameters, retain_graph=True)
    for asked in (views[2:4], states[2:4], parameters):
        found += td.autograd.grad(loss, asked, retain_graph=True)
    return found


def retained(loss, states, views, parameters):
    states[1].retain_grad()
    views[4].retain_grad()
    loss.backward()
    return [states[1].grad, views[4].grad, *(p.grad for p in parameters)]


def hooks(loss, states, views, parameters):
    seen = []
    states[2].register_hook(seen.append)
    states[6].register_hook(lambda g: g * 2.0)
    views[0].register_hook(lambda g: g * 3.0)
    loss.backward()
    return [*seen, *(p.grad for p in parameters)]


def hooks_of_records(loss, states, views, parameters):
    states[3].grad_fn.register_prehook(lambda grads: tuple(g * 0.5 for g in grads))
    loss.backward()
    return [p.grad for p in parameters]


def twice(loss, states, views, parameters):
    first = td.autograd.grad(loss, [states[0], *parameters], create_graph=True)
    return td.autograd.grad(sum((g * g).sum() for g in first), [states[0], *parameters])


def later(loss, states, views, parameters):
    """Something else is made of what is held."""
    return td.autograd.grad(loss + (states[4] * states[0]).sum() + views[3].prod(), [states[4], *parameters])


@pytest.mark.parametrize(
    "look", [of_parameters, of_states, of_views, one_after_the_other, retained, hooks, hooks_of_records, twice, later]
)
def test_gradients_are_those_of_eager_code(look):
    for found, wanted in zip(run(True, look), run(False, look), strict=True):
        np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-9, atol=1e-12)
