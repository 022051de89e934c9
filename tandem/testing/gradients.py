"""gradcheck: derivatives against finite differences."""

from __future__ import annotations

import tandem as td
from tandem.errors import TandemError
from tandem.tensors.methods import Tensor


class GradcheckError(TandemError, AssertionError):
    """A derivative differs from finite differences."""


def gradcheck(
    func, inputs, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True, **ways
) -> bool:
    """Whether the gradients of `func` agree with central differences, for every input that requires gradients, which should
    be float64 (or complex128). All outputs of floating type count. PyTorch's other options (fast_mode, nondet_tol, check_...) are
    accepted; the check is the whole one in any case.

    >>> td.testing.gradcheck(td.sin, td.tensor([0.1, 0.7], dtype=td.float64, requires_grad=True))
    True
    """
    inputs = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    _accept(ways)
    moving = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    if not moving:
        raise ValueError("gradcheck: none of the inputs requires gradients")
    coarse = [str(inputs[i].dtype) for i in moving if inputs[i].dtype not in (td.float64, td.complex128)]
    if coarse:
        raise ValueError(f"gradcheck: {coarse[0]} is too coarse for finite differences\n  fix: use float64 inputs")
    try:
        _check(func, inputs, moving, eps, atol, rtol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(func, inputs, grad_outputs=None, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
                  raise_exception: bool = True, **ways) -> bool:  # fmt: skip
    """gradcheck of the gradient: second derivatives.

    >>> td.testing.gradgradcheck(td.sin, td.tensor([0.1, 0.7], dtype=td.float64, requires_grad=True))
    True
    """
    inputs = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    _accept(ways)
    moving = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    if grad_outputs is None:
        generator = td.Generator().manual_seed(0)
        grad_outputs = [
            td.randn(*out.shape, dtype=out.dtype, generator=generator).requires_grad_()
            for out in _outputs(func, inputs)
        ]
    elif isinstance(grad_outputs, Tensor):
        grad_outputs = [grad_outputs]

    def gradient(*values):
        given, weights = values[: len(inputs)], values[len(inputs) :]
        grads = td.autograd.grad(
            _outputs(func, given), [given[i] for i in moving], list(weights), create_graph=True, allow_unused=True
        )
        return tuple(g for g in grads if g is not None and g.requires_grad)

    return gradcheck(gradient, (*inputs, *grad_outputs), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception)


def _accept(ways: dict):
    for name in ways:
        if not (
            name.startswith("check_") or name in ("fast_mode", "gen_non_contig_grad_outputs", "masked", "nondet_tol")
        ):
            raise TypeError(f"gradcheck has no option {name!r}")


def _outputs(func, inputs) -> list:
    result = func(*inputs)
    parts = result if isinstance(result, (tuple, list)) else (result,)
    return [p for p in parts if isinstance(p, Tensor) and p.dtype.is_inexact]


def _check(func, inputs, moving, eps, atol, rtol):
    fixed = [x.detach().clone() if isinstance(x, Tensor) else x for x in inputs]

    def leaves(replaced: dict) -> list:  # the inputs themselves may be views, or results of other work
        values = [replaced.get(i, x) for i, x in enumerate(fixed)]
        return [x.detach().clone().requires_grad_() if i in moving else x for i, x in enumerate(values)]

    given = leaves({})
    outputs = _outputs(func, given)
    generator = td.Generator().manual_seed(1)
    for number, out in enumerate(outputs):
        if not out.requires_grad:
            continue
        weight = td.randn(*out.shape, dtype=out.dtype, generator=generator)
        grads = td.autograd.grad(out, [given[i] for i in moving], weight, retain_graph=True, allow_unused=True)
        for i, grad in zip(moving, grads, strict=True):
            x = fixed[i]
            flat = x.reshape(-1)
            for position in range(flat.size):
                # A complex gradient holds the derivatives by the real and by the imaginary part.
                for step in (eps, eps * 1j) if x.dtype.is_complex else (eps,):
                    moved = []
                    for sign in (1, -1):
                        values = flat.clone()
                        values[position] = values[position] + sign * step
                        moved.append(_outputs(func, leaves({i: values.reshape(x.shape)}))[number].detach())
                    change = (weight.conj() * (moved[0] - moved[1])).sum().item() / (2 * eps)
                    slope = grad.reshape(-1)[position].item() if grad is not None else 0.0
                    expected = change.real if isinstance(change, complex) else change
                    found = (slope.imag if isinstance(step, complex) else slope.real) if x.dtype.is_complex else slope
                    if not abs(found - expected) <= atol + rtol * abs(expected):
                        raise GradcheckError(
                            "gradcheck",
                            f"output {number}, derivative by element {position} of input {i}: {found:.6g}, "
                            f"finite differences give {expected:.6g}",
                        )
