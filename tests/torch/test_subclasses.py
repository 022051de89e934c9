"""Subclasses of Tensor: their class goes through operators, and __torch_function__ says what operators do."""

import copy

import pytest

import tandem as td
import tandem.torch as torch


class Plain(torch.Tensor):
    """Says nothing about operators."""


class Logged(torch.Tensor):
    seen: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func)
        assert types == (cls,)
        return super().__torch_function__(func, types, args, kwargs)


class Metres(torch.Tensor):
    """Adds metres to metres only."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.add and not all(isinstance(a, cls) for a in args):
            raise TypeError("metres are added to metres")
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x + 1,
        lambda x: 1 - x,
        lambda x: torch.ones(2) * x,
        lambda x: torch.exp(x),
        lambda x: x.sum(),
        lambda x: x[0],
        lambda x: x[:1],
        lambda x: x.clone().add_(1),
        lambda x: x.T,
        lambda x: x.data,
        lambda x: x.detach(),
        lambda x: x.to(torch.float64),
        lambda x: x.new_zeros(2),
        lambda x: x.view(2, 1),
        lambda x: torch.stack([torch.ones(2), x]),
        lambda x: torch.max(x, 0).values,
        lambda x: torch.std(x),
        lambda x: torch.nn.functional.relu(x),
        lambda x: torch.nn.functional.interpolate(x.view(1, 1, 2), scale_factor=2),
        lambda x: torch.nn.Linear(2, 2)(x),
        lambda x: x.unbind()[0],
        lambda x: next(iter(x)),
        lambda x: copy.deepcopy(x),
    ],
)
def test_what_is_made_of_a_subclass_is_of_it(make):
    x = torch.tensor([1.0, 3.0]).as_subclass(Plain)
    assert type(make(x)) is Plain
    plain = make(torch.tensor([1.0, 3.0]))
    assert type(plain) is torch.Tensor and plain.shape == make(x).shape


def test_numbers_sizes_and_text_are_as_of_tensors():
    x = torch.Tensor._make_subclass(Plain, torch.ones(2))
    assert x.shape == (2,) and len(x) == 2 and x.tolist() == [1.0, 1.0] and bool((x == 1).all())
    assert repr(x) == "Plain([1., 1.])" and x.dtype is torch.float32


def test_gradients_go_through():
    leaf = torch.ones(3, requires_grad=True)
    x = leaf.as_subclass(Plain)
    y = x * 2
    y.add_(1)
    y[0].mul_(5)
    y.sum().backward()
    assert leaf.grad.tolist() == [10.0, 2.0, 2.0]
    own = torch.Tensor._make_subclass(Plain, torch.ones(2), True)
    (own**2).sum().backward()
    assert own.grad.tolist() == [2.0, 2.0] and own.is_leaf


def test_functions_methods_and_properties_are_asked():
    x = torch.ones(2).as_subclass(Logged)
    for call, name in (
        (lambda: torch.exp(x), "exp"),
        (lambda: x.new_zeros(2), "new_zeros"),
        (lambda: x.shape, "__get__"),
        (lambda: torch.std(x), "std"),
        (lambda: torch.where(torch.ones(2) > 0, torch.ones(2), x), "where"),
    ):
        Logged.seen.clear()
        call()
        assert [f.__name__ for f in Logged.seen] == [name]


def test_backward_does_not_ask():
    leaf = torch.ones(2, requires_grad=True)
    y = (leaf.as_subclass(Logged) ** 2).sum()
    Logged.seen.clear()
    y.backward()
    assert [f.__name__ for f in Logged.seen] in ([], ["backward"]) and leaf.grad.tolist() == [2.0, 2.0]


def test_a_subclass_may_refuse():
    a = torch.ones(2).as_subclass(Metres)
    assert type(a + a) is Metres
    with pytest.raises(TypeError, match="metres are added to metres"):
        a + 1
    with pytest.raises(TypeError, match="metres are added to metres"):
        torch.add(torch.ones(2), a)


def test_it_can_be_switched_off():
    class Off(torch.Tensor):
        __torch_function__ = torch._C._disabled_torch_function_impl

    x = torch.ones(2).as_subclass(Off)
    assert type(x + 1) is torch.Tensor
    y = torch.ones(2).as_subclass(Plain)
    with torch._C.DisableTorchFunctionSubclass():
        assert type(y + 1) is torch.Tensor
    assert type(torch.nn.Parameter(torch.ones(2)) * 2) is torch.Tensor


def test_compiled_functions_compute_with_them():
    x = torch.ones(2).as_subclass(Plain)
    assert td.compile(lambda a: (a * 3).sum())(x).item() == 6.0
