"""checkpoint: results that backward needs are computed again instead of kept."""

from __future__ import annotations

import functools

from tandem import _runtime
from tandem.control.regions import Draws
from tandem.transforms.traced import call, take
from tandem.tree import flatten, unflatten


def checkpoint(fn, *args, use_reentrant=None, preserve_rng_state: bool = True, **kwargs):
    """fn(*args, **kwargs), keeping only the arguments for backward, which computes everything between them and the result again.

    Takes less memory and about a third more time. Random numbers are the same the second time. fn's code runs once, on tensors
    without values: it cannot look at them (`if x > 0`). use_reentrant and preserve_rng_state are accepted for PyTorch's sake.

    Without arguments it gives a function that does so, as jax.checkpoint does, and serves as a decorator.

    >>> x = td.tensor([1.0, 2.0], requires_grad=True)
    >>> td.checkpoint(lambda x: x.exp().sin(), x).sum().backward()
    >>> wave = td.remat(lambda x: x.exp().sin())
    >>> wave(x).sum().backward()
    """
    if not args and not kwargs:
        return functools.wraps(fn)(functools.partial(checkpoint, fn))
    leaves, structure = flatten((list(args), kwargs))
    operands = [leaf for leaf in leaves if isinstance(leaf, _runtime.Tensor)]

    def one(*values):
        given = iter(values)
        a, k = unflatten(structure, [next(given) if isinstance(x, _runtime.Tensor) else x for x in leaves])
        return fn(*a, **k)

    result, state = take("checkpoint", one, [(t.dtype, list(t.shape), t.requires_grad) for t in operands], operands)

    def build(body, tensors, consts, generator):
        draws = Draws(generator.seed, generator.take(body.draws)) if body.random else None
        return body.trace(list(tensors), list(consts), draws)

    return unflatten(result.structure, call("checkpoint", result, operands, state, (), build, recompute=True))
