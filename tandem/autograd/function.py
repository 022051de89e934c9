"""Functions with a gradient written by the user."""

from __future__ import annotations

import functools

import tandem.ops as F
from tandem import _runtime
from tandem.autograd.modes import enable_grad, no_grad
from tandem.errors import AutogradError


class Context:
    """What forward leaves for backward."""

    def __init__(self):
        self._saved = ()
        self._non_differentiable = set()
        self._dirty = set()
        self._materialize = True
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors):
        """Keeps tensors for backward and notices if they are changed in place meanwhile."""
        self._saved = tuple((t, t._version if t is not None else 0) for t in tensors)

    @property
    def saved_tensors(self):
        for i, (t, version) in enumerate(self._saved):
            if t is not None and t._version != version:
                raise AutogradError(
                    None, f"saved tensor {i} was changed in place after forward saved it", fix="save a clone()"
                )
        return tuple(t for t, _ in self._saved)

    def mark_non_differentiable(self, *tensors):
        self._non_differentiable = {id(t) for t in tensors}

    def mark_dirty(self, *tensors):
        """Says which arguments forward changed in place; it returns them, and they become results."""
        self._dirty = {id(t) for t in tensors}

    def set_materialize_grads(self, value: bool):
        """Whether backward gets zeros (as it does unless told otherwise) or None for results that have no gradient."""
        self._materialize = bool(value)


class Function:
    """Subclass with static `forward(ctx, *args)` and `backward(ctx, *grads)`, then call `apply`.

    >>> class Double(td.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         return g * 2
    >>> x = td.ones(2, requires_grad=True)
    >>> Double.apply(x).sum().backward()
    >>> x.grad
    tensor([2., 2.])
    """

    @staticmethod
    def forward(ctx, *args, **kwargs):
        raise NotImplementedError("define forward(ctx, *args) as a static method")

    @staticmethod
    def setup_context(ctx, inputs, output):
        """If defined, forward takes no ctx, and what backward needs is left there by this function."""
        raise NotImplementedError

    @staticmethod
    def backward(ctx, *args, **kwargs):
        raise NotImplementedError("define backward(ctx, *grads) as a static method")

    @classmethod
    def apply(cls, *args, **kwargs):
        ctx = Context()
        is_tensor = [isinstance(a, _runtime.Tensor) for a in args]
        ctx.needs_input_grad = tuple(t and a.requires_grad for a, t in zip(args, is_tensor, strict=True))
        with no_grad():
            if cls.setup_context is Function.setup_context:
                result = cls.forward(ctx, *args, **kwargs)
            else:
                result = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, result)
        if not _runtime.grad_enabled() or not any(ctx.needs_input_grad):
            return result
        single = isinstance(result, _runtime.Tensor)
        outputs = [result] if single else list(result)
        for a, needs in zip(args, ctx.needs_input_grad, strict=True):
            if needs and id(a) in ctx._dirty and a.is_leaf:
                raise AutogradError(
                    cls.__name__, "an argument that collects a gradient is changed in place", fix="pass x.clone()"
                )
        # An input handed back as it is must become a result of its own, unless it was changed into one.
        handed_back = {id(a) for a, t in zip(args, is_tensor, strict=True) if t} - ctx._dirty
        outputs = [o.view_as_self() if id(o) in handed_back else o for o in outputs]
        recorded = [
            o
            for o in outputs
            if isinstance(o, _runtime.Tensor) and o.dtype.is_inexact and id(o) not in ctx._non_differentiable
        ]
        inputs = [a if needs else None for a, needs in zip(args, ctx.needs_input_grad, strict=True)]
        positions = [i for i, o in enumerate(outputs) if any(o is r for r in recorded)]

        like = [
            (o.shape, {"dtype": o.dtype, "device": o.device}) if isinstance(o, _runtime.Tensor) else None
            for o in outputs
        ]  # not the outputs themselves: a record that held them would never be freed

        def run(create_graph, *grads):
            full = [None] * len(outputs)
            for i, g in zip(positions, grads, strict=True):
                full[i] = g
            if ctx._materialize:
                full = [F.full(like[i][0], 0, **like[i][1]) if g is None and like[i] else g for i, g in enumerate(full)]
            with enable_grad() if create_graph else no_grad():
                result = cls.backward(ctx, *full)
            result = result if isinstance(result, tuple) else (result,)
            if len(result) > len(args) and all(g is None for g in result[len(args) :]):
                result = result[: len(args)]
            if len(result) != len(args):
                raise AutogradError(
                    cls.__name__,
                    f"backward returned {len(result)} gradients for {len(args)} arguments of forward",
                    fix="return one gradient (or None) for each argument",
                )
            for i, g in enumerate(result):
                if g is not None and not isinstance(g, _runtime.Tensor):
                    raise AutogradError(
                        cls.__name__, f"gradient {i} is a {type(g).__name__}; it must be a tensor or None"
                    )
            with enable_grad() if create_graph else no_grad():
                return tuple(
                    _like(cls, i, g, a) if g is not None and ctx.needs_input_grad[i] else g
                    for i, (g, a) in enumerate(zip(result, args, strict=True))
                )

        run.context = ctx
        _runtime.record_python(run, cls.__name__, inputs, recorded)
        return outputs[0] if single else tuple(outputs)


def _like(cls, i: int, g, a):
    """As in PyTorch, a gradient that an argument was broadcast to is added up to its shape, and one of another dtype converted."""
    if g.shape != a.shape:
        ends = zip(reversed(g.shape), reversed(a.shape), strict=False)
        if g.ndim < a.ndim or any(m not in (1, n) for n, m in ends):
            raise AutogradError(cls.__name__, f"gradient {i} is {g.shape} but argument {i} is {a.shape}")
        g = g.sum_to_size(a.shape)
    if g.dtype is a.dtype:
        return g
    return (F.real(g) if g.dtype.is_complex and not a.dtype.is_complex else g).to(a.dtype)


FunctionCtx = Context


def once_differentiable(backward):
    """Decorates backward of a Function whose gradient cannot be differentiated again: trying to is an error, not a wrong answer."""

    @functools.wraps(backward)
    def wrapped(ctx, *grads):
        again = _runtime.grad_enabled() and any(g is not None and g.requires_grad for g in grads)
        with no_grad():
            made = backward(ctx, *grads)
        if not again:
            return made
        found = made if isinstance(made, tuple) else (made,)
        refused = tuple(
            _Refused.apply(g, *[t for t in grads if t is not None]) if g is not None else None for g in found
        )
        return refused if isinstance(made, tuple) else refused[0]

    return wrapped


class _Refused(Function):
    @staticmethod
    def forward(ctx, g, *grads):
        return g.clone()

    @staticmethod
    def backward(ctx, *grads):
        raise AutogradError(None, "a backward marked once_differentiable is differentiated a second time")
