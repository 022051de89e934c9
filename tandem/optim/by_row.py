"""Update rules applied to the rows that a sparse gradient names.

Note [Updates by row]
A rule computes new values of a parameter and its state, element by element. Its form by rows reads the rows, computes, and writes
them back: nothing else is touched, whatever the size of the table. Rows must be named once. Where sizes may depend on values, that
is what coalescing gives; in compiled functions and on devices the list keeps its length, and its last row stands there several
times with the same gradient, so that all of them write the same (`SparseTensor.padded_rows`).
"""

from __future__ import annotations

import functools

from tandem import _runtime
from tandem.errors import ShapeError
from tandem.ops.define import ParameterSpec, make_function
from tandem.ops.index import CheckIndex, Gather, Scatter
from tandem.ops.prepare import cast, show_shape


@functools.cache
def by_row(rule):
    """The form of an update rule that takes rows (m) and their gradients (m, *r) in place of a gradient."""
    fn = rule.__wrapped__.__wrapped__
    count = 1 + len(rule.state)
    names = ("param", *rule.state)

    def body(*arguments):
        written, rows, rest = arguments[:count], arguments[count], arguments[count + 1 :]
        for name, t in zip(names, written, strict=True):
            if name != "step" and t.shape[0] != written[0].shape[0]:
                raise ShapeError(
                    rule.__name__, f"{name} is {show_shape(t.shape)}, param is {show_shape(written[0].shape)}"
                )
        rows = CheckIndex(written[0].shape[0], 0, False)(rows)  # before anything is written
        whole = [name == "step" for name in names]  # a number, not rows
        read = [t if w else Gather()(t, rows) for t, w in zip(written, whole, strict=True)]
        made = fn(*read, *rest)
        made = made if isinstance(made, tuple) else (made,)
        stored = [
            new if w else Scatter("set")(old, cast(new, old.dtype), rows)
            for old, new, w in zip(written, made, whole, strict=True)
        ]
        return tuple(stored) if count > 1 else stored[0]

    body.__module__, body.__qualname__ = fn.__module__, f"{fn.__qualname__}_by_row"
    rows = ParameterSpec("rows", "tensor", True, None, False)
    parameters = [*rule.parameters[:count], rows, *rule.parameters[count:]]
    name = f"{rule.__name__}_by_row"
    return make_function(name, body, parameters, None, writes=count, digest=f"by_row {fn.__module__}.{fn.__qualname__}")


def rows_of(g):
    """Rows and their gradients, each row once but for the last (see Note [Updates by row])."""
    if g.sparse_dim() != 1:
        raise ShapeError(
            "step",
            f"the sparse gradient has {g.sparse_dim()} sparse axes; optimisers update whole rows",
            fix="grad.to_dense()",
        )
    if not _runtime.capturing() and not g.is_cuda:
        g = g.coalesce()
    return g.padded_rows()
