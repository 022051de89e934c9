"""PyTorch's forms of transforms, which take a function and its inputs at once and give derivatives instead of functions."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime
from tandem.autograd.backward import grad
from tandem.autograd.modes import enable_grad
from tandem.errors import AutogradError, ShapeError
from tandem.transforms.jacobian import jacfwd, jacrev

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def jacobian(
    func,
    inputs,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
):
    """The Jacobian of func at inputs: (*output shape, *input shape); for several inputs or outputs, tuples of them.

    >>> td.autograd.functional.jacobian(lambda x: x * x, td.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    several = isinstance(inputs, (tuple, list))
    arguments = tuple(inputs) if several else (inputs,)
    transform = jacfwd if strategy == "forward-mode" else jacrev
    result = transform(func, tuple(range(len(arguments))))(*arguments)
    result = result if several else _first(result)
    return result if create_graph else _detached(result)


def hessian(func, inputs, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode"):  # fmt: skip
    """The second derivatives of a function that gives one number, by each pair of inputs.

    >>> td.autograd.functional.hessian(lambda x: (x**3).sum(), td.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    several = isinstance(inputs, (tuple, list))

    def gradient(*values):
        return jacobian(func, values if several else values[0], create_graph=True)

    return jacobian(gradient, inputs, create_graph, strategy=outer_jacobian_strategy)


def _first(result):
    """Of a function's results, each a tuple with one entry for its only input, that entry."""
    if isinstance(result, tuple) and result and isinstance(result[0], tuple):
        return tuple(r[0] for r in result)
    return result[0] if isinstance(result, tuple) else result


def _detached(result):
    return tuple(_detached(r) for r in result) if isinstance(result, tuple) else result.detach()


# -- products with derivatives


def _tuple(values) -> tuple:
    return tuple(values) if isinstance(values, (tuple, list)) else (values,)


def _leaves(inputs, create_graph: bool) -> tuple:
    """Inputs to differentiate by: recorded views of those that are part of a graph that is to go on, leaves of their own else."""
    return tuple(
        x.view_as_self() if create_graph and x.requires_grad else x.detach().requires_grad_() for x in _tuple(inputs)
    )


def _call(name: str, func, inputs, create_graph: bool, scalar: bool = False):
    leaves = _leaves(inputs, create_graph)
    outputs = func(*leaves)
    for y in _tuple(outputs):
        if not isinstance(y, _runtime.Tensor):
            raise AutogradError(name, f"the function gave a {type(y).__name__}; it must give tensors")
        if scalar and y.size != 1:
            raise AutogradError(name, f"the function gave a tensor of {y.shape}; it must give one number")
    return leaves, outputs


def _directions(name: str, v, like, what: str) -> tuple:
    """v, checked against what it is multiplied with; ones if it is not given and that has one element."""
    like = _tuple(like)
    if v is None:
        if len(like) != 1 or like[0].size != 1:
            raise AutogradError(name, f"v may be left out only if the {what} is a single number")
        return (F.ones_like(like[0]),)
    v = _tuple(v)
    if len(v) != len(like):
        raise AutogradError(name, f"there are {len(like)} {what}s but {len(v)} tensors in v")
    for a, b in zip(v, like, strict=True):
        if a.shape != b.shape:
            raise ShapeError(name, f"v has {a.shape} for an {what} of {b.shape}")
    return v


def _pull(name: str, outputs, inputs, v, create_graph: bool, strict: bool) -> tuple:
    """Gradients of outputs times v, zeros for what takes no part."""
    pairs = [(y, g) for y, g in zip(outputs, v, strict=True) if y.requires_grad]
    found = (None,) * len(inputs)
    if pairs:
        ys, gs = zip(*pairs, strict=True)
        found = grad(list(ys), inputs, list(gs), create_graph=create_graph, retain_graph=True, allow_unused=True)
    if strict and (len(pairs) < len(outputs) or any(g is None for g in found)):
        raise AutogradError(name, "an output does not depend on an input, and strict=True forbids that")
    return tuple(F.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True))


def _given(value, like, create_graph: bool):
    """A result in the form of what it belongs to: one tensor or a tuple; without history unless asked for."""
    result = value if isinstance(like, (tuple, list)) else value[0]
    return result if create_graph else _detached(result)


@enable_grad()
def vjp(func, inputs, v=None, create_graph: bool = False, strict: bool = False):
    """func's value at inputs, and v times its Jacobian: (outputs, one tensor for each input).

    >>> td.autograd.functional.vjp(lambda x: x * x, td.tensor([1.0, 2.0]), td.ones(2))
    (tensor([1., 4.]), tensor([2., 4.]))
    """
    leaves, outputs = _call("vjp", func, inputs, create_graph)
    v = _directions("vjp", v, outputs, "output")
    found = _pull("vjp", _tuple(outputs), leaves, v, create_graph, strict)
    return _given(_tuple(outputs), outputs, create_graph), _given(found, inputs, create_graph)


@enable_grad()
def jvp(func, inputs, v=None, create_graph: bool = False, strict: bool = False):
    """func's value at inputs, and its Jacobian times v: (outputs, one tensor for each output).

    >>> td.autograd.functional.jvp(lambda x: x * x, td.tensor([1.0, 2.0]), td.tensor([1.0, 0.0]))
    (tensor([1., 4.]), tensor([2., 0.]))
    """
    leaves, outputs = _call("jvp", func, inputs, create_graph)
    v = _directions("jvp", v, leaves, "input")
    # Pulling u back is linear in u, and its transpose pushes v forward.
    u = tuple(F.zeros_like(y).requires_grad_() for y in _tuple(outputs))
    pulled = _pull("jvp", _tuple(outputs), leaves, u, True, strict)
    found = _pull("jvp", pulled, u, v, create_graph, False)
    return _given(_tuple(outputs), outputs, create_graph), _given(found, outputs, create_graph)


def _second(name: str, func, inputs, v, create_graph: bool, strict: bool):
    leaves, output = _call(name, func, inputs, create_graph, scalar=True)
    v = _directions(name, v, leaves, "input")
    first = _pull(name, (output,), leaves, (F.ones_like(output),), True, strict)
    found = _pull(name, first, leaves, v, create_graph, strict)
    return _given((output,), output, create_graph), _given(found, inputs, create_graph)


@enable_grad()
def vhp(func, inputs, v=None, create_graph: bool = False, strict: bool = False):
    """The value of a function that gives one number, and v times its matrix of second derivatives.

    >>> td.autograd.functional.vhp(lambda x: (x**3).sum(), td.tensor([1.0, 2.0]), td.ones(2))
    (tensor(9.), tensor([ 6., 12.]))
    """
    return _second("vhp", func, inputs, v, create_graph, strict)


@enable_grad()
def hvp(func, inputs, v=None, create_graph: bool = False, strict: bool = False):
    """The value of a function that gives one number, and its matrix of second derivatives, which is symmetric, times v."""
    return _second("hvp", func, inputs, v, create_graph, strict)
