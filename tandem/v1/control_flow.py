"""cond, while_loop, map_fn and scan with the classic signatures.

Where the functions only compute, these are td.cond and td.while_loop, with gradients. Functions that change variables, print, use
queues or call Python are wired from primitives instead, and have none.
"""

import tandem as _td
from tandem.dtypes import as_dtype as _as_dtype
from tandem.errors import DTypeError as _DTypeError
from tandem.errors import ShapeError as _ShapeError
from tandem.errors import UnsupportedError as _UnsupportedError
from tandem.graph.ir import Value as _Value
from tandem.session import graph_ops as _ops
from tandem.session.build import as_tensor as _as_tensor
from tandem.session.build import graph_of as _graph_of
from tandem.session.tensor_shape import TensorShape as _TensorShape
from tandem.session.wired import wire_while as _wire_while
from tandem.tree import flatten as _flatten
from tandem.tree import unflatten as _unflatten
from tandem.v1.wrap import int32_if_whole as _int32_if_whole
from tandem.v1.wrap import named as _named


def _structured_or_wired(structured, wired):
    try:
        return structured()
    except _UnsupportedError as error:
        if "graph_ops" not in (error.fix or ""):
            raise
    return wired()


def cond(pred, true_fn=None, false_fn=None, strict=False, name=None, fn1=None, fn2=None):
    """true_fn() if pred holds, else false_fn()."""
    true_fn, false_fn = true_fn or fn1, false_fn or fn2
    with _graph_of(pred) as graph:
        return _named(
            graph,
            name,
            lambda: _structured_or_wired(
                lambda: _td.cond(pred, true_fn, false_fn), lambda: _ops.cond(pred, true_fn, false_fn)
            ),
        )


def while_loop(cond, body, loop_vars, shape_invariants=None, parallel_iterations=10, back_prop=True, swap_memory=False,
               name=None, maximum_iterations=None):  # fmt: skip
    """The variables after loop_vars = body(*loop_vars) was repeated while cond(*loop_vars) held; one variable by itself.

    shape_invariants: shapes of the variables, None where a size changes on the way; such a loop has no gradients.
    """
    graph = _graph_of(*loop_vars)
    start = [_as_tensor(graph, v, _int32_if_whole(v)) for v in loop_vars]
    shapes = None if shape_invariants is None else _invariants(start, shape_invariants)

    def listed(*variables):
        after = body(*variables)
        return list(after) if isinstance(after, (list, tuple)) else [after]

    def wired():
        if maximum_iterations is None:
            return _wire_while(cond, listed, start, parallel_iterations, "while", shapes)
        # The number of iterations is one variable more.
        made = _wire_while(
            lambda count, *v: _td.logical_and(count < maximum_iterations, cond(*v)),
            lambda count, *v: [count + 1, *listed(*v)],
            [_as_tensor(graph, 0, _td.int64), *start],
            parallel_iterations,
            "while",
            None if shapes is None else [(), *shapes],
        )
        return made[1:]

    def structured():
        return _td.while_loop(lambda *v: cond(*v), lambda *v: listed(*v), start, maximum_iterations)

    with graph:
        made = _named(graph, name, lambda: wired() if shapes else _structured_or_wired(structured, wired))
    return made[0] if len(made) == 1 else made


def _invariants(start: list, given) -> list | None:
    """Shapes of loop variables as they are declared; None if no size changes."""
    given = [_TensorShape(s).as_list() for s in given]
    known = [v.get_shape().as_list() for v in start]
    fits = len(given) == len(known) and all(
        len(g) == len(k) and all(n is None or n == m for n, m in zip(g, k, strict=True))
        for g, k in zip(given, known, strict=True)
    )
    if not fits:
        raise _ShapeError(
            "while_loop",
            f"shape_invariants are {given} and the variables {known}; there must be one for each, with its sizes or None",
        )
    return None if given == known else [tuple(g) for g in given]


def map_fn(
    fn, elems, dtype=None, parallel_iterations=10, back_prop=True, swap_memory=False, infer_shape=True, name=None
):
    """fn of each row of elems, stacked. The type of the results is whatever fn gives; dtype, if given, must be that."""
    graph = _graph_of(*_flatten(elems)[0])
    with graph:
        made = _named(graph, name, lambda: _td.map(fn, _tensors(graph, elems)))
    if dtype is not None:
        found, declared = [v.dtype for v in _flatten(made)[0]], [_as_dtype(d) for d in _flatten(dtype)[0]]
        if found != declared:
            raise _DTypeError(
                "map_fn", f"fn gives {found} and dtype says {declared}", fix="leave dtype out, or cast in fn"
            )
    return made


def scan(fn, elems, initializer=None, parallel_iterations=10, back_prop=True, swap_memory=False, infer_shape=True, reverse=False,
         name=None):  # fmt: skip
    """a = fn(a, x) for each row x of elems, beginning with a = initializer, or with the first row; all of them, stacked."""
    graph = _graph_of(*_flatten(elems)[0], *_flatten(initializer)[0])

    def build():
        rows = _tensors(graph, elems)

        def step(a, x):
            a = fn(a, x)
            return a, a

        if initializer is not None:
            return _td.scan(step, _tensors(graph, initializer), rows, reverse=reverse)[1]
        leaves, structure = _flatten(rows)
        first = _unflatten(structure, [v[-1 if reverse else 0] for v in leaves])
        rest = _unflatten(structure, [v[:-1] if reverse else v[1:] for v in leaves])
        made = _flatten(_td.scan(step, first, rest, reverse=reverse)[1])[0]
        ends = [_td.unsqueeze(v, 0) for v in _flatten(first)[0]]
        joined = [_td.concat([m, e] if reverse else [e, m], 0) for m, e in zip(made, ends, strict=True)]
        return _unflatten(structure, joined)

    with graph:
        return _named(graph, name, build)


def _tensors(graph, values):
    leaves, structure = _flatten(values if isinstance(values, (tuple, dict, _Value)) else _as_tensor(graph, values))
    return _unflatten(structure, [_as_tensor(graph, v, _int32_if_whole(v)) for v in leaves])
