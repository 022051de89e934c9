"""associative_scan: all running totals of an associative operation, in a number of steps that grows with the logarithm."""

from __future__ import annotations

import tandem.ops as F
from tandem.errors import ShapeError, UnsupportedError
from tandem.tree import flatten, unflatten


def associative_scan(fn, xs, reverse: bool = False):
    """Row i of the result is fn(... fn(fn(x_0, x_1), x_2) ..., x_i), for an associative fn of whole stacks of rows.

    xs: a tensor, or a container of tensors with first axes of one length. fn is called on such containers, and works row by row.

    >>> td.associative_scan(lambda a, b: a * b, td.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor([ 1.,  2.,  6., 24.])
    """
    leaves, structure = flatten(xs)
    lengths = {x.shape[0] if x.ndim else None for x in leaves}
    if None in lengths or len(lengths) > 1:
        raise ShapeError(
            "associative_scan", f"first axes must be of one length; shapes are {[tuple(x.shape) for x in leaves]}"
        )
    if not leaves:
        return xs
    if not isinstance(leaves[0].shape[0], int):
        raise UnsupportedError(
            "associative_scan", "the length must be known when the graph is built", fix="use td.scan"
        )

    def combine(a: list, b: list) -> list:
        made, kind = flatten(fn(unflatten(structure, a), unflatten(structure, b)))
        if kind != structure:
            raise ShapeError(
                "associative_scan", f"the function gives {kind!r} for {structure!r}; the containers must be the same"
            )
        return made

    if reverse:
        leaves = [F.flip(x, 0) for x in leaves]
        made = _scan(lambda a, b: combine(b, a), leaves)
        return unflatten(structure, [F.flip(x, 0) for x in made])
    return unflatten(structure, _scan(combine, leaves))


def _scan(combine, xs: list) -> list:
    n = xs[0].shape[0]
    if n < 2:
        return list(xs)
    # totals at odd positions are those of pairs; at even ones, one more step from the odd one before
    odd = _scan(combine, combine([x[0 : n - 1 : 2] for x in xs], [x[1::2] for x in xs]))
    if n > 2:
        later = combine([y[: (n - 1) // 2] for y in odd], [x[2::2] for x in xs])
        even = [F.concat([x[:1], y], 0) for x, y in zip(xs, later, strict=True)]
    else:
        even = [x[:1] for x in xs]
    return [_woven(a, b) for a, b in zip(even, odd, strict=True)]


def _woven(even, odd):
    """even[0], odd[0], even[1], odd[1], ..."""
    half = odd.shape[0]
    pairs = F.stack([even[:half], odd], 1)
    woven = F.reshape(pairs, (2 * half, *odd.shape[1:]))
    return woven if even.shape[0] == half else F.concat([woven, even[half:]], 0)
