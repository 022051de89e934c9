"""cond, switch_case: one of several functions, chosen by a value."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.control import check
from tandem.control.body import as_tensor, call_region, device_of, region_or_python, spec, take_down, where_made
from tandem.control.mode import deferred, is_captured
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.tree import flatten, unflatten


def cond(pred, true_fn, false_fn, *args):
    """true_fn(*args) if pred is true, else false_fn(*args). Both must give the same shapes and dtypes in a graph.

    pred: a bool, or a tensor with one element. In a compiled function or a graph the value of pred is not read by Python: both
    functions become part of the program, and only the chosen one runs. Functions may use tensors from around them.

    >>> x = td.tensor(3.0)
    >>> td.cond(x > 2, lambda v: v * 2, lambda v: v - 1, x)
    tensor(6.)
    """
    recorder = deferred(pred, args, true_fn, false_fn)
    if recorder is not None:
        from tandem.control.graphs import record_cond

        return record_cond(recorder, "cond", pred, [false_fn, true_fn], args)
    python = lambda: true_fn(*args) if _truth("cond", pred) else false_fn(*args)
    if isinstance(pred, bool) or not is_captured():
        return python()
    index = _one("cond", pred)
    index = index if index.dtype is dtypes.bool_ else index != 0
    functions = [("false_fn", false_fn), ("true_fn", true_fn)]
    return region_or_python(lambda: _region("cond", index, functions, args), python)


def switch_case(index, branches, *args, default=None):
    """branches[index](*args). An index outside of the list chooses `default`, or the last branch.

    >>> td.switch_case(td.tensor(1), [lambda x: x, lambda x: x + 10], td.tensor(5.0))
    tensor(15.)
    """
    functions = list(branches)
    if isinstance(branches, dict):
        return _by_key(index, branches, args, default)
    if not functions and default is None:
        raise ValueRangeError("switch_case", "there are no branches")
    if default is not None:
        functions.append(default)
    last = len(functions) - 1
    recorder = deferred(index, args, *functions)
    if recorder is not None:
        from tandem.control.graphs import record_cond

        return record_cond(recorder, "switch_case", F.where((index < 0) | (index > last), last, index), functions, args)
    if isinstance(index, int) or not is_captured():
        return _chosen(index, functions, args)
    index = _one("switch_case", index)
    if index.dtype.kind not in ("int", "uint"):
        raise DTypeError("switch_case", f"index is {index.dtype}; it must be an integer")
    index = F.where((index < 0) | (index > last), last, index).astype(dtypes.int64)
    named = [(f"branch {i}", fn) for i, fn in enumerate(functions)]
    return region_or_python(lambda: _region("switch_case", index, named, args), lambda: _chosen(index, functions, args))


def _chosen(index, functions: list, args):
    chosen = int(index)
    return functions[chosen if 0 <= chosen < len(functions) else -1](*args)


def _by_key(index, branches: dict, args, default):
    keys = list(branches)
    functions = [branches[k] for k in keys]
    if default is None:
        raise ValueRangeError("switch_case", "branches are a dict, so an index may have none", fix="pass default=")
    if isinstance(index, int):
        return branches.get(index, default)(*args)
    position = len(keys)
    for i, k in enumerate(keys):
        position = F.where(index == k, i, position)
    return switch_case(position, functions, *args, default=default)


def _truth(name: str, pred) -> bool:
    if isinstance(pred, _runtime.Tensor) and pred.size != 1:
        raise ShapeError(
            name, f"the predicate has shape {tuple(pred.shape)}; it must have one element", fix="use .any() or .all()"
        )
    return bool(pred)


def _one(name: str, x):
    x = as_tensor(name, x)
    if x.size != 1:
        raise ShapeError(
            name, f"the predicate has shape {tuple(x.shape)}; it must have one element", fix="use .any() or .all()"
        )
    return x.reshape(())


def _region(name: str, index, functions, args):
    leaves, structure = flatten(args)
    static = [not isinstance(leaf, _runtime.Tensor) for leaf in leaves]  # Python numbers stay what they are
    tensors = [leaf for leaf, s in zip(leaves, static, strict=True) if not s]
    state = _runtime.default_generator().get_state()
    results = []
    for _, fn in functions:
        _runtime.default_generator().set_state(state)

        def body(*values, fn=fn):
            given = iter(values)
            return fn(
                *unflatten(structure, [leaf if s else next(given) for leaf, s in zip(leaves, static, strict=True)])
            )

        results.append(
            take_down(name, body, [spec(t, t.requires_grad) for t in tensors], device=device_of([index, *tensors]))
        )
    check.branches(name, [(what, r.leaves, r.structure) for (what, _), r in zip(functions, results, strict=True)])
    if not results[0].leaves:
        return unflatten(results[0].structure, [])
    made = call_region("cond", [r.taken for r in results], [index, *tensors], state)
    return unflatten(results[0].structure, where_made(made, results[0]))
