"""Gradients of functions: transforms that take a function and give one."""

from __future__ import annotations

import threading

import tandem.ops as F
from tandem import _runtime
from tandem.autograd.backward import grad as gradients
from tandem.errors import AutogradError
from tandem.tree import flatten, unflatten


def _call_recorded(fn, args, argnums):
    """fn on fresh leaves in place of the chosen arguments (tensors or containers of them): value, leaves, and per argument its
    Structure."""
    args = list(args)
    leaves, structures = [], []
    for i in argnums:
        given, structure = flatten(args[i])
        own = []
        for x, path in zip(given, structure.paths(), strict=True):
            if not isinstance(x, _runtime.Tensor):
                raise AutogradError(
                    "grad", f"argument {i}{path} is a {type(x).__name__}; only tensors can be differentiated by"
                )
            if not x.dtype.is_inexact:
                raise AutogradError(
                    "grad", f"argument {i}{path} is {x.dtype}; only floating tensors can be differentiated by"
                )
            # A view of the argument: recorded, so that gradients of gradients reach the caller's tensor too.
            own.append(x.view_as_self() if x.requires_grad else _nesting.leaf(x))
        args[i] = unflatten(structure, own)
        leaves += own
        structures.append(structure)
    return fn(*args), leaves, structures


def _regroup(structures, values) -> tuple:
    """One container for each argument, from the values of all their leaves."""
    values = iter(values)
    return tuple(unflatten(s, [next(values) for _ in s.paths()]) for s in structures)


def value_and_grad(fn, argnums: int | tuple[int, ...] = 0, has_aux: bool = False):
    """A function that gives fn's value and its gradient with respect to the arguments `argnums`: tensors, or containers of them.

    >>> td.value_and_grad(lambda x: x * x)(td.tensor(3.0))
    (tensor(9.), tensor(6.))
    """
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def wrapped(*args, **kwargs):
        for i in positions:
            if not -len(args) <= i < len(args):
                raise AutogradError("grad", f"argnums names argument {i}, but {len(args)} were given")
        nested = outside = _is_nested(flatten([args[i] for i in positions])[0])
        before = _runtime.set_grad_enabled(True)
        _nesting.enter()
        try:
            result, leaves, structures = _call_recorded(lambda *a: fn(*a, **kwargs), args, positions)
            value, aux = result if has_aux else (result, None)
            if not isinstance(value, _runtime.Tensor) or value.size != 1:
                raise AutogradError(
                    "grad", "the function must give a tensor with one element", fix="reduce it, e.g. with .sum()"
                )
            grads = [None] * len(leaves)
            if value.requires_grad:
                nested = nested or (before and _reads_more([value], leaves))
                grads = gradients(value, leaves, create_graph=nested, allow_unused=True)
        finally:
            _nesting.leave()
            _runtime.set_grad_enabled(before)
        grads = _regroup(
            structures, [F.zeros_like(leaf) if g is None else g for g, leaf in zip(grads, leaves, strict=True)]
        )
        if not nested:
            value = value.detach()
        aux = _without_leaves(aux, leaves, before) if has_aux and not outside else aux
        result = grads[0] if isinstance(argnums, int) else grads
        return ((value, aux), result) if has_aux else (value, result)

    return wrapped


def _without_leaves(given, leaves, recording: bool):
    """Values beside the one that is differentiated, for the caller: without history that ends in these leaves alone, which nobody
    else can reach."""
    values, structure = flatten(given)

    def cut(x):
        if not isinstance(x, _runtime.Tensor) or not x.requires_grad:
            return x
        return x if recording and _reads_more([x], leaves) else x.detach()

    return unflatten(structure, [cut(x) for x in values])


def _is_nested(args) -> bool:
    """Inside another gradient function, or on arguments that somebody differentiates by. So are tensors that the function reads
    elsewhere (_reads_more): parameters of a closure get gradients of what a gradient function gives."""
    return _nesting.depth > 0 or (
        _runtime.grad_enabled() and any(isinstance(a, _runtime.Tensor) and a.requires_grad for a in args)
    )


def _reads_more(values, leaves) -> bool:
    """Whether values come from tensors of the caller's beside these leaves, and beside those of gradient functions inside of it."""
    return _runtime.has_other_leaves(values, leaves + _nesting.leaves)


class _Nesting(threading.local):
    """The gradient functions that run in this thread, one inside of another, and the leaves that they made."""

    def __init__(self):
        self.depth, self.leaves = 0, []

    def enter(self):
        self.depth += 1

    def leave(self):
        self.depth -= 1
        if self.depth == 0:
            self.leaves = []

    def leaf(self, x):
        made = x.detach().requires_grad_()
        if self.depth > 0:
            self.leaves.append(made)
        return made


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


def vjp(fn, *primals, has_aux: bool = False):
    """fn's value at primals, and the function that pulls a gradient of the value back to the primals.

    has_aux: fn gives (value, other), and other is a third result.

    >>> y, pull = td.vjp(lambda x: x * x, td.tensor([1.0, 2.0]))
    >>> pull(td.ones(2))
    (tensor([2., 4.]),)
    """
    # As in value_and_grad: where somebody may differentiate what comes out, pulling back is recorded.
    nested = outside = _is_nested(flatten(list(primals))[0])
    before = _runtime.set_grad_enabled(True)
    try:
        value, leaves, structures = _call_recorded(fn, primals, range(len(primals)))
    finally:
        _runtime.set_grad_enabled(before)
    value, aux = value if has_aux else (value, None)
    outputs, structure = flatten(value)
    recorded = [o for o in outputs if isinstance(o, _runtime.Tensor) and o.requires_grad]
    nested = nested or (before and _reads_more(recorded, leaves))
    if not nested:
        value = unflatten(structure, [o.detach() if isinstance(o, _runtime.Tensor) else o for o in outputs])
    aux = _without_leaves(aux, leaves, before) if has_aux and not outside else aux

    def pull(*cotangents):
        if (
            len(cotangents) == 1
            and structure.kind is not None
            and (len(outputs) != 1 or not isinstance(cotangents[0], _runtime.Tensor))
        ):
            cotangents = cotangents[0]
        g, _ = flatten(list(cotangents) if isinstance(cotangents, tuple) else cotangents)
        if len(g) != len(outputs):
            raise AutogradError("vjp", f"the function gave {len(outputs)} tensors, but {len(g)} gradients came")
        pairs = [(o, c) for o, c in zip(outputs, g, strict=True) if o.requires_grad]
        if not pairs:
            return _regroup(structures, [F.zeros_like(leaf) for leaf in leaves])
        outs, cots = zip(*pairs, strict=True)
        create = _runtime.grad_enabled() and (nested or any(c.requires_grad for c in cots))
        result = gradients(list(outs), leaves, list(cots), retain_graph=True, create_graph=create, allow_unused=True)
        return _regroup(
            structures, [F.zeros_like(leaf) if r is None else r for r, leaf in zip(result, leaves, strict=True)]
        )

    return (value, pull, aux) if has_aux else (value, pull)
