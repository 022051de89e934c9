"""Tensors and gradients kept within bounds."""

import tandem as _td
from tandem.v1.wrap import in_graph, operand


@in_graph
def clip_by_value(t, clip_value_min, clip_value_max):
    """Elements below the one become the one, those above the other become the other."""
    return _td.clip(t, clip_value_min, clip_value_max)


@in_graph
def clip_by_norm(t, clip_norm, axes=None):
    """t, made shorter if its norm (of all of it, or along these axes) is more than clip_norm."""
    t = operand(t)
    norm = _td.sqrt(_td.sum(t * t, axes if axes is None else tuple(axes), True))
    return t * clip_norm / _td.maximum(norm, clip_norm)


@in_graph
def global_norm(t_list):
    """The norm of all these tensors together; None among them counts for nothing."""
    total = None
    for t in t_list:
        if t is not None:
            squares = _td.sum(operand(t) * t)
            total = squares if total is None else total + squares
    return _td.zeros(()) if total is None else _td.sqrt(total)


@in_graph
def clip_by_global_norm(t_list, clip_norm, use_norm=None):
    """(tensors, norm): the tensors, all made shorter by the same factor if their norm together is more than clip_norm."""
    norm = global_norm(t_list) if use_norm is None else use_norm
    factor = clip_norm / _td.maximum(norm, clip_norm)
    return [None if t is None else t * factor for t in t_list], norm
