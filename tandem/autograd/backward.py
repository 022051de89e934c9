"""backward, and gradients of recorded results."""

from __future__ import annotations

import threading

import tandem.ops as F
from tandem import _runtime
from tandem.errors import AutogradError, DTypeError, ShapeError


class _Ending(threading.local):
    calls = None  # a list of what is to be done when the backward pass of this thread ends, or fails


_ending = _Ending()


def when_done(call, otherwise=None):
    """Has a function called when the backward pass that runs in this thread has ended, all gradients being there; or another one,
    if it fails. For hooks."""
    if _ending.calls is None:
        _ending.calls = []
    _ending.calls.append((call, otherwise))


def _end():
    calls = _ending.calls
    if calls:
        del _ending.calls
        for call, _ in calls:
            call()


def _fail():
    for _, otherwise in _ending.__dict__.pop("calls", ()):
        if otherwise is not None:
            otherwise()


def _start(tensors, grads, name: str) -> tuple[list, list]:
    tensors = [tensors] if isinstance(tensors, _runtime.Tensor) else list(tensors)
    grads = [grads] * len(tensors) if grads is None else [grads] if isinstance(grads, _runtime.Tensor) else list(grads)
    if len(grads) != len(tensors):
        raise AutogradError(name, f"{len(tensors)} tensors but {len(grads)} gradients were given")
    filled = []
    for t, g in zip(tensors, grads, strict=True):
        if not t.requires_grad:
            raise AutogradError(
                name,
                f"the tensor of shape {t.shape} does not require grad: nothing it was computed from does",
                fix="set requires_grad=True on the inputs you differentiate by, and check that no_grad is not active",
            )
        if g is None:
            if t.size != 1:
                raise AutogradError(
                    name,
                    f"a gradient is started from a tensor of shape {t.shape}; without a gradient argument it must have one element",
                    fix="reduce it first (loss.sum().backward()) or pass gradient=",
                )
            if t.dtype.is_complex:
                raise AutogradError(
                    name,
                    f"a gradient is started from a tensor of {t.dtype}; a loss must be real",
                    fix="take its real part or absolute value (loss.real, abs(loss)), or pass gradient=",
                )
            with _no_record():
                g = F.ones_like(t)
        elif not isinstance(g, _runtime.Tensor):
            raise DTypeError(name, f"a gradient is a {type(g).__name__}; it must be a tensor or None")
        elif g.shape != t.shape:
            raise ShapeError(name, f"the gradient is {g.shape} but the tensor is {t.shape}")
        elif g.dtype is not t.dtype:
            if g.dtype.is_complex and not t.dtype.is_complex:
                raise DTypeError(
                    name,
                    f"the gradient is {g.dtype} but the tensor is {t.dtype}",
                    fix="give a real one, such as its .real",
                )
            g = g.to(t.dtype)
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
        try:
            _runtime.backward(tensors, grads, None, retain, create_graph)
        except BaseException:
            _fail()
            raise
        _end()
        return
    inputs = [inputs] if isinstance(inputs, _runtime.Tensor) else list(inputs)
    for leaf, g in zip(inputs, _runtime.backward(tensors, grads, inputs, retain, create_graph), strict=True):
        if g is not None:
            leaf.grad = g if leaf.grad is None else leaf.grad + g


def _tensor_backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    if gradient is None and inputs is None and not create_graph:
        try:
            done = _runtime.backward_from_loss(self, bool(retain_graph))
        except BaseException:
            _fail()
            raise
        if done:
            _end()
            return
    backward(self, gradient, retain_graph, create_graph, inputs)


_tensor_backward.__doc__ = backward.__doc__


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True, allow_unused=None,
         is_grads_batched=False, materialize_grads=False):  # fmt: skip
    """Gradients of outputs with respect to tensors that took part in computing them; nothing accumulates.

    allow_unused: None for inputs that took no part, instead of an error; materialize_grads: zeros for them. is_grads_batched:
    grad_outputs have one more axis, the first, and so have the gradients.

    >>> x = td.tensor(3.0, requires_grad=True)
    >>> td.autograd.grad(x * x, x)
    (tensor(6.),)
    """
    if not only_inputs:
        raise AutogradError("grad", "only_inputs=False has no meaning any more", fix="use backward() for all leaves")
    if is_grads_batched:
        return _batched(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads)
    if materialize_grads and allow_unused is False:
        raise AutogradError("grad", "materialize_grads gives zeros for unused inputs, which allow_unused=False forbids")
    outputs, grads = _start(outputs, grad_outputs, "grad")
    single = isinstance(inputs, _runtime.Tensor)
    inputs = [inputs] if single else list(inputs)
    for i, t in enumerate(inputs):
        if not t.requires_grad:
            raise AutogradError(
                "grad",
                f"input {i} of shape {t.shape} does not require grad",
                fix="set requires_grad=True on it before computing",
            )
    retain = create_graph if retain_graph is None else retain_graph
    result = list(_runtime.backward(outputs, grads, inputs, retain, create_graph))
    for i, g in enumerate(result):
        if g is None and materialize_grads:
            result[i] = F.zeros_like(inputs[i])
        elif g is None and not allow_unused:
            raise AutogradError(
                "grad",
                f"input {i} was not used to compute the outputs",
                fix="pass allow_unused=True to get None for it",
            )
    return tuple(result)


def _batched(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads) -> tuple:
    """One gradient after the other for each slice of grad_outputs, stacked."""
    several = not isinstance(outputs, _runtime.Tensor)
    starts = list(grad_outputs) if several else [grad_outputs]
    count = next(g.shape[0] for g in starts if g is not None)
    rows = []
    for i in range(count):
        start = [None if g is None else g[i] for g in starts]
        retain = True if i < count - 1 else retain_graph
        rows.append(
            grad(outputs, inputs, start if several else start[0], retain, create_graph, True, allow_unused,
                 materialize_grads=materialize_grads)
        )  # fmt: skip
    return tuple(None if column[0] is None else F.stack(list(column), 0) for column in zip(*rows, strict=True))
