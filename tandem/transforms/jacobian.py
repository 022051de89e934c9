"""jacrev, jacfwd, hessian: whole matrices of derivatives, a row or a column at a time, all at once."""

from __future__ import annotations

import functools

import tandem.ops as F
from tandem import _runtime
from tandem.autograd.gradients import vjp
from tandem.errors import AutogradError
from tandem.transforms.forward import jvp
from tandem.transforms.vectorize import vmap
from tandem.tree import flatten, unflatten


def _chosen(name: str, args, argnums):
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for i in positions:
        if not -len(args) <= i < len(args):
            raise AutogradError(name, f"argnums names argument {i}, but {len(args)} were given")
        if not isinstance(args[i], _runtime.Tensor):
            raise AutogradError(
                name, f"argument {i} is a {type(args[i]).__name__}; only tensors can be differentiated by"
            )
    return positions


def _basis(x):
    """One tensor of x's shape for each element, with a 1 there: (elements, *shape)"""
    return F.reshape(F.eye(x.size, dtype=x.dtype), (x.size, *x.shape))


def jacrev(fn, argnums: int | tuple[int, ...] = 0, has_aux: bool = False, chunk_size: int | None = None):
    """The Jacobian of fn, by reverse mode: good where results are fewer than arguments.

    For a result of shape (*a) and an argument of shape (*b) it is (*a, *b); containers of results give containers, a tuple of
    argnums a tuple in each. Nests with grad, jacfwd and vmap.

    >>> td.jacrev(lambda x: td.stack([x[0] * x[1], x[0] ** 2]))(td.tensor([2.0, 3.0]))
    tensor([[3., 2.],
            [4., 0.]])
    """

    @functools.wraps(fn, updated=())
    def wrapped(*args, **kwargs):
        positions = _chosen("jacrev", args, argnums)
        structure = None

        def flat(*chosen):
            nonlocal structure
            full = list(args)
            for i, x in zip(positions, chosen, strict=True):
                full[i] = x
            result = fn(*full, **kwargs)
            result, aux = result if has_aux else (result, None)
            leaves, structure = flatten(result)
            return tuple(leaves), aux

        values, pull, aux = vjp(flat, *(args[i] for i in positions), has_aux=True)
        rows = []
        for k, y in enumerate(values):
            zeros = [F.zeros_like(v) for v in values]

            def pull_one(g, k=k, zeros=zeros):
                return pull(*[g if j == k else z for j, z in enumerate(zeros)])

            if y.size == 0:
                made = [F.zeros((*y.shape, *args[i].shape), dtype=args[i].dtype) for i in positions]
            else:
                made = vmap(pull_one, chunk_size=chunk_size)(_basis(y))
                made = [F.reshape(m, (*y.shape, *args[i].shape)) for m, i in zip(made, positions, strict=True)]
            rows.append(made[0] if isinstance(argnums, int) else tuple(made))
        result = unflatten(structure, rows)
        return (result, aux) if has_aux else result

    return wrapped


def jacfwd(
    fn,
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    chunk_size: int | None = None,
    *,
    randomness: str = "error",
):
    """The Jacobian of fn, by forward mode: good where arguments are fewer than results. Shapes as for jacrev.

    >>> td.jacfwd(td.sin)(td.tensor([0.0, 0.0]))
    tensor([[1., 0.],
            [0., 1.]])
    """

    @functools.wraps(fn, updated=())
    def wrapped(*args, **kwargs):
        positions = _chosen("jacfwd", args, argnums)
        columns, aux = [], None
        for i in positions:

            def of_one(x, i=i):
                full = list(args)
                full[i] = x
                return fn(*full, **kwargs)

            def push(t, i=i, of_one=of_one):
                result = jvp(of_one, (args[i],), (t,), has_aux=has_aux)
                return (result[1], result[2]) if has_aux else result[1]

            x = args[i]
            if x.size == 0:
                raise AutogradError("jacfwd", f"argument {i} has no elements")
            made = vmap(push, out_axes=(-1, 0) if has_aux else -1, randomness=randomness, chunk_size=chunk_size)(
                _basis(x)
            )
            if has_aux:
                made, aux = made
            leaves, structure = flatten(made)
            columns.append([F.reshape(m, (*m.shape[:-1], *x.shape)) for m in leaves])
        if isinstance(argnums, int):
            result = unflatten(structure, columns[0])
        else:
            result = unflatten(structure, [tuple(parts) for parts in zip(*columns, strict=True)])
        if has_aux:
            leaves, aux_structure = flatten(aux)
            return result, unflatten(aux_structure, [a[0] for a in leaves])
        return result

    return wrapped


def hessian(fn, argnums: int | tuple[int, ...] = 0):
    """Second derivatives of fn: forward mode over reverse mode.

    >>> td.hessian(lambda x: (x ** 3).sum())(td.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(fn, argnums), argnums)
