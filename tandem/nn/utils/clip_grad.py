"""Gradients limited in size."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.autograd.modes import no_grad
from tandem.ops.define import op
from tandem.ops.precision import widen
from tandem.sparse.forms import single_values


@op(hidden=True, mutates=("total",))
def _add_power(total: Tensor, g: Tensor, p: Tensor):
    return total + F.sum(F.astype(F.power(F.abs(widen(g)), p), total.dtype))


@op(hidden=True, mutates=("total",))
def _add_square(total: Tensor, g: Tensor):
    g = widen(g)
    squares = F.square(F.real(g)) + F.square(F.imag(g)) if g.dtype.is_complex else g * g
    return total + F.astype(F.sum(squares), total.dtype)


@op(hidden=True, mutates=("total",))
def _take_largest(total: Tensor, g: Tensor):
    return F.maximum(total, F.astype(F.amax(F.abs(g)), total.dtype))


@op(hidden=True)
def _clip_factor(norm: Tensor, max_norm: Tensor):
    return F.minimum(max_norm / (norm + 1e-6), 1.0)


@op(hidden=True, mutates=("g",))
def _scale(g: Tensor, factor: Tensor):
    """In float32: a factor may be too small for 16 bits."""
    wide = widen(g)
    return F.astype(wide * F.astype(factor, dtypes.part_dtype(wide.dtype)), g.dtype)


def _once(g):
    """A gradient, or of a sparse one the values, each place once."""
    return single_values(g) if g.is_sparse else g


def _gradients(parameters) -> list:
    if isinstance(parameters, _runtime.Tensor):
        parameters = [parameters]
    return [p.grad for p in parameters if p.grad is not None]


@no_grad()
def get_total_norm(tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach=None):
    """The norm of all tensors as if they were one vector.

    >>> td.nn.utils.get_total_norm([td.tensor([3.0]), td.tensor([4.0])])
    tensor(5.)
    """
    tensors = [t for t in ([tensors] if isinstance(tensors, _runtime.Tensor) else list(tensors)) if t.size]
    norm_type = float(norm_type)
    if any(_runtime.parts_of(t) is not None for t in tensors):
        return _norm_of_sharded(tensors, norm_type, error_if_nonfinite)
    totals = {}  # one a device, in the order of the tensors
    for t in map(_once, tensors):
        total = totals.get(t.device)
        if total is None:
            total = totals[t.device] = F.full((), 0.0, dtype=dtypes.float64, device=t.device)
        if norm_type == 2.0:
            _add_square(total, t)
        elif norm_type == math.inf:
            _take_largest(total, t)
        else:
            _add_power(total, t, norm_type)
    total, *others = totals.values() or (F.full((), 0.0, dtype=dtypes.float64),)
    for other in others:
        other = other.to(total.device)
        total = F.maximum(total, other) if norm_type == math.inf else total + other
    if norm_type != math.inf:
        total = F.sqrt(total) if norm_type == 2.0 else F.power(total, 1.0 / norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"the total norm of order {norm_type} is {total.item()}: gradients are not finite and cannot be clipped"
        )
    return total if any(dtypes.part_dtype(t.dtype) is dtypes.float64 for t in tensors) else total.to(dtypes.float32)


def _norm_of_sharded(tensors: list, norm_type: float, error_if_nonfinite: bool):
    """The same where some are sharded: sums of parts stay partial until all are added, so ranks meet once."""
    made = []
    for t in tensors:
        size = F.abs(t).to(dtypes.float64)
        made.append(
            F.amax(size) if norm_type == math.inf else F.sum(size * size if norm_type == 2.0 else size**norm_type)
        )
    plain = [m for m in made if _runtime.parts_of(m) is None]
    sharded = sorted((m for m in made if _runtime.parts_of(m) is not None), key=lambda m: str(m.placements))
    total = None
    for m in [*sharded, *plain]:
        total = m if total is None else F.maximum(total, m) if norm_type == math.inf else total + m
    total = total.full_tensor()
    total = total if norm_type == math.inf else F.power(total, 1.0 / norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(f"the total norm of order {norm_type} is {total.item()}: gradients cannot be clipped")
    return total if any(dtypes.part_dtype(t.dtype) is dtypes.float64 for t in tensors) else total.to(dtypes.float32)


@no_grad()
def clip_grads_with_norm_(parameters, max_norm: float, total_norm, foreach=None):
    """Scales gradients in place so that total_norm becomes at most max_norm."""
    factor = _clip_factor(total_norm, float(max_norm))
    for g in _gradients(parameters):
        here = factor.to(g.device)
        F.multiply_(g, here) if g.is_sparse else _scale(g, here)


@no_grad()
def clip_grad_norm_(
    parameters, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach=None
):
    """Scales all gradients in place so that their total norm is at most max_norm; gives the norm they had.

    >>> p = td.nn.Parameter(td.zeros(2))
    >>> p.grad = td.tensor([3.0, 4.0])
    >>> td.nn.utils.clip_grad_norm_([p], 1.0), p.grad
    (tensor(5.), tensor([0.6000, 0.8000]))
    """
    parameters = [parameters] if isinstance(parameters, _runtime.Tensor) else list(parameters)
    divided = [p for p in parameters if getattr(p, "division", None) is not None]
    if divided:
        norm = _norm_over_ranks(parameters, divided, float(norm_type))
    else:
        norm = get_total_norm(_gradients(parameters), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


def _norm_over_ranks(parameters: list, divided: list, norm_type: float):
    """The total norm where ranks have parts of some gradients (tandem/distributed/fsdp.py)."""
    group = divided[0].division.group
    ids = {id(p) for p in divided}
    here = get_total_norm(_gradients(divided), norm_type).to(dtypes.float64)
    whole = get_total_norm(_gradients(p for p in parameters if id(p) not in ids), norm_type).to(dtypes.float64)
    if norm_type == math.inf:
        return F.maximum(F.all_reduce(here, group.token, group.size(), "max"), whole).to(dtypes.float32)
    total = F.all_reduce(here**norm_type, group.token, group.size(), "sum") + whole**norm_type
    return (total ** (1.0 / norm_type)).to(dtypes.float32)


@no_grad()
def clip_grad_value_(parameters, clip_value: float, foreach=None):
    """Limits every element of all gradients, in place, to [-clip_value, clip_value]."""
    for g in _gradients(parameters):
        g.clip_(-float(clip_value), float(clip_value))
