"""Hooks of modules."""

import pytest

import tandem as td
from tandem import nn


class Add(nn.Module):
    def forward(self, a, b=1.0):
        return a + b, a * 2


def test_forward_hooks_see_and_change():
    m = nn.Linear(2, 2)
    order = []
    m.register_forward_pre_hook(lambda mod, args: order.append("pre") or (args[0] * 0,))
    m.register_forward_hook(lambda mod, args, out: order.append("post") or out + 1)
    m.register_forward_pre_hook(lambda mod, args: order.append("first"), prepend=True)
    assert m(td.ones(1, 2)).tolist() == [(m.bias + 1).tolist()]
    assert order == ["first", "pre", "post"]


def test_hooks_with_keywords():
    m = Add()
    m.register_forward_pre_hook(lambda mod, args, kwargs: (args, {"b": 5.0}), with_kwargs=True)
    m.register_forward_hook(lambda mod, args, kwargs, out: (*out, kwargs["b"]), with_kwargs=True)
    assert m(td.ones(1), b=2.0)[0].item() == 6.0 and m(td.ones(1))[2] == 5.0
    m.register_forward_pre_hook(lambda mod, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(TypeError, match=r"\(args, kwargs\)"):
        m(td.ones(1))


def test_hooks_can_be_removed():
    m = nn.Identity()
    handle = m.register_forward_hook(lambda *a: 7)
    assert m(1) == 7
    handle.remove()
    handle.remove()
    assert m(1) == 1
    with m.register_forward_hook(lambda *a: 7):
        assert m(1) == 7
    assert m(1) == 1


def test_always_called_hooks_run_after_errors():
    seen = []
    m = nn.Linear(2, 2)
    m.register_forward_hook(lambda *a: seen.append("always"), always_call=True)
    m.register_forward_hook(lambda *a: seen.append("normal"))
    with pytest.raises(td.ShapeError):
        m(td.ones(1, 3))
    assert seen == ["always"]


def test_backward_hooks_get_all_gradients_together():
    m = Add()
    seen = []
    m.register_full_backward_pre_hook(lambda mod, out: seen.append([None if g is None else g.tolist() for g in out]))
    m.register_full_backward_hook(
        lambda mod, into, out: seen.append([None if g is None else g.tolist() for g in (*into, *out)])
    )
    a, b = td.tensor([1.0], requires_grad=True), td.tensor([2.0], requires_grad=True)
    total, double = m(a, b)
    (total * 3 + double * 5).sum().backward()
    assert seen == [[[3.0], [5.0]], [[13.0], [3.0], [3.0], [5.0]]]
    assert a.grad.tolist() == [13.0] and b.grad.tolist() == [3.0]


def test_backward_hooks_replace_gradients():
    m = nn.Linear(2, 1, bias=False)
    m.register_full_backward_pre_hook(lambda mod, out: (out[0] * 10,))
    m.register_full_backward_hook(lambda mod, into, out: (into[0] * 0 + 7,))
    x = td.ones(1, 2, requires_grad=True)
    m(x).sum().backward()
    assert m.weight.grad.tolist() == [[10.0, 10.0]] and x.grad.tolist() == [[7.0, 7.0]]


def test_backward_hooks_where_no_input_needs_a_gradient():
    m = nn.Linear(2, 1)
    seen = []
    m.register_full_backward_hook(lambda mod, into, out: seen.append((into, out[0].tolist())))
    m(td.ones(1, 2)).sum().backward()
    assert seen == [((None,), [[1.0]])]
    with td.no_grad():
        m(td.ones(1, 2))


def test_hooks_allow_second_derivatives():
    m = nn.Tanh()
    m.register_full_backward_hook(lambda mod, into, out: None)
    x = td.tensor(0.5, requires_grad=True)
    (g,) = td.autograd.grad(m(x), x, create_graph=True)
    (second,) = td.autograd.grad(g, x)
    t = td.tanh(td.tensor(0.5)).item()
    assert second.item() == pytest.approx(-2 * t * (1 - t * t), rel=1e-5)
