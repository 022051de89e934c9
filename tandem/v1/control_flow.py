"""cond and while_loop with the classic signatures.

Where the functions only compute, these are td.cond and td.while_loop, with gradients. Functions that change variables, print, use
queues or call Python are wired from primitives instead, and have none.
"""

import tandem as _td
from tandem.errors import UnsupportedError as _UnsupportedError
from tandem.session import graph_ops as _ops
from tandem.session.build import as_tensor as _as_tensor
from tandem.session.build import graph_of as _graph_of
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
    """The variables after loop_vars = body(*loop_vars) was repeated while cond(*loop_vars) held; one variable by itself."""
    graph = _graph_of(*loop_vars)
    start = [_as_tensor(graph, v) for v in loop_vars]

    def listed(*variables):
        after = body(*variables)
        return list(after) if isinstance(after, (list, tuple)) else [after]

    with graph:
        made = _named(
            graph,
            name,
            lambda: _structured_or_wired(
                lambda: _td.while_loop(lambda *v: cond(*v), lambda *v: listed(*v), start, maximum_iterations),
                lambda: _ops.while_loop(cond, listed, start, parallel_iterations),
            ),
        )
    return made[0] if len(made) == 1 else made
