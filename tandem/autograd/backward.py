"""backward and functional gradients."""

from __future__ import annotations

import threading

import tandem.ops as F
from tandem import _runtime
from tandem.errors import AutogradError, ShapeError


def _start(tensors, grads, name: str) -> tuple[list, list]:
    tensors = [tensors] if isinstance(tensors, _runtime.Tensor) else list(tensors)
    grads = [grads] * len(tensors) if grads is None else [grads] if isinstance(grads, _runtime.Tensor) else list(grads)
    if len(grads) != len(tensors):
        raise AutogradError(name, f"{len(tensors)} tensors but {len(grads)} gradients were given")
    filled = []
    for t, g in zip(tensors, grads, strict=True):
        if not t.requires_grad:
            raise AutogradError(
                name, f"the tensor of shape {t.shape} does not require grad: nothing it was computed from does",
                fix="set requires_grad=True on the inputs you differentiate by, and check that no_grad is not active",
            )
        if g is None:
            if t.size != 1:
                raise AutogradError(
                    name, f"a gradient is started from a tensor of shape {t.shape}; without a gradient argument it must have one element",
                    fix="reduce it first (loss.sum().backward()) or pass gradient=",
                )
            with _no_record():
                g = F.ones_like(t)
        elif g.shape != t.shape:
            raise ShapeError(name, f"the gradient is {g.shape} but the tensor is {t.shape}")
        filled.append(g)
    return tensors, filled


class _no_record:
    def __enter__(self):
        self._before = _runtime.set_grad_enabled(False)

    def __exit__(self, *exc):
        _runtime.set_grad_enabled(self._before)


def backward(tensors, grad_tensors=None, retain_graph: bool | None = None, create_graph: bool = False, inputs=None):
    """Adds the gradients of `tensors` to `.grad` of the leaves they were computed from.

    >>> x = td.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """
    tensors, grads = _start(tensors, grad_tensors, "backward")
    retain = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        _runtime.backward(tensors, grads, None, retain, create_graph)
        return
    inputs = [inputs] if isinstance(inputs, _runtime.Tensor) else list(inputs)
    for leaf, g in zip(inputs, _runtime.backward(tensors, grads, inputs, retain, create_graph), strict=True):
        if g is not None:
            leaf.grad = g if leaf.grad is None else leaf.grad + g


def _tensor_backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    backward(self, gradient, retain_graph, create_graph, inputs)


_tensor_backward.__doc__ = backward.__doc__


def gradients(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, allow_unused=False):
    """Gradients of outputs with respect to tensors that took part in computing them; nothing accumulates.

    >>> x = td.tensor(3.0, requires_grad=True)
    >>> td.autograd.grad(x * x, x)
    (tensor(6.),)
    """
    outputs, grads = _start(outputs, grad_outputs, "grad")
    single = isinstance(inputs, _runtime.Tensor)
    inputs = [inputs] if single else list(inputs)
    for i, t in enumerate(inputs):
        if not t.requires_grad:
            raise AutogradError("grad", f"input {i} of shape {t.shape} does not require grad", fix="set requires_grad=True on it before computing")
    retain = create_graph if retain_graph is None else retain_graph
    result = _runtime.backward(outputs, grads, inputs, retain, create_graph)
    for i, g in enumerate(result):
        if g is None and not allow_unused:
            raise AutogradError("grad", f"input {i} was not used to compute the outputs", fix="pass allow_unused=True to get None for it")
    return tuple(result)


# -- functional: gradients of functions


def _call_recorded(fn, args, argnums):
    """fn on fresh leaves in place of the chosen arguments, with their leaves."""
    args = list(args)
    leaves = []
    for i in argnums:
        if not isinstance(args[i], _runtime.Tensor):
            raise AutogradError("grad", f"argument {i} is a {type(args[i]).__name__}; only tensors can be differentiated by")
        if not args[i].dtype.is_inexact:
            raise AutogradError("grad", f"argument {i} is {args[i].dtype}; only floating tensors can be differentiated by")
        # A view of the argument: recorded, so that gradients of gradients reach the caller's tensor too.
        args[i] = args[i].view_as_self() if args[i].requires_grad else args[i].detach().requires_grad_()
        leaves.append(args[i])
    return fn(*args), leaves


def value_and_grad(fn, argnums: int | tuple[int, ...] = 0, has_aux: bool = False):
    """A function that gives fn's value and its gradient with respect to the arguments `argnums`.

    >>> td.value_and_grad(lambda x: x * x)(td.tensor(3.0))
    (tensor(9.), tensor(6.))
    """
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def wrapped(*args, **kwargs):
        # Inside another gradient function, or on arguments somebody differentiates by, gradients are recorded in turn.
        nested = _nesting.depth > 0 or (
            _runtime.grad_enabled() and any(isinstance(args[i], _runtime.Tensor) and args[i].requires_grad for i in positions)
        )
        before = _runtime.set_grad_enabled(True)
        _nesting.depth += 1
        try:
            result, leaves = _call_recorded(lambda *a: fn(*a, **kwargs), args, positions)
            value, aux = result if has_aux else (result, None)
            if not isinstance(value, _runtime.Tensor) or value.size != 1:
                raise AutogradError("grad", "the function must give a tensor with one element", fix="reduce it, e.g. with .sum()")
            grads = [None] * len(leaves)
            if value.requires_grad:
                grads = gradients(value, leaves, create_graph=nested, allow_unused=True)
        finally:
            _nesting.depth -= 1
            _runtime.set_grad_enabled(before)
        grads = tuple(F.zeros_like(leaf) if g is None else g for g, leaf in zip(grads, leaves, strict=True))
        if not nested:
            value = value.detach()
        result = grads[0] if isinstance(argnums, int) else grads
        return ((value, aux), result) if has_aux else (value, result)

    return wrapped


class _Nesting(threading.local):
    depth = 0


_nesting = _Nesting()


def grad(fn, argnums: int | tuple[int, ...] = 0, has_aux: bool = False):
    """The gradient function of fn. Nests: grad(grad(f)) is the second derivative.

    >>> td.grad(lambda x: x ** 3)(td.tensor(2.0))
    tensor(12.)
    """
    both = value_and_grad(fn, argnums, has_aux)

    def wrapped(*args, **kwargs):
        value, g = both(*args, **kwargs)
        return (g, value[1]) if has_aux else g

    return wrapped


def vjp(fn, *primals):
    """fn's value at primals, and the function that pulls a gradient of the value back to the primals.

    >>> y, pull = td.vjp(lambda x: x * x, td.tensor([1.0, 2.0]))
    >>> pull(td.ones(2))
    (tensor([2., 4.]),)
    """
    before = _runtime.set_grad_enabled(True)
    try:
        value, leaves = _call_recorded(fn, primals, range(len(primals)))
    finally:
        _runtime.set_grad_enabled(before)
    outputs = value if isinstance(value, (tuple, list)) else (value,)

    def pull(*cotangents):
        g = cotangents[0] if len(cotangents) == 1 and isinstance(cotangents[0], (tuple, list)) else cotangents
        pairs = [(o, c) for o, c in zip(outputs, g, strict=True) if o.requires_grad]
        if not pairs:
            return tuple(F.zeros_like(leaf) for leaf in leaves)
        outs, cots = zip(*pairs, strict=True)
        create = _runtime.grad_enabled() and any(c.requires_grad for c in cots)
        result = gradients(list(outs), leaves, list(cots), retain_graph=True, create_graph=create, allow_unused=True)
        return tuple(F.zeros_like(leaf) if r is None else r for r, leaf in zip(result, leaves, strict=True))

    return value, pull
