"""scan, fori_loop, map, while_loop: functions applied again and again."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.control import check
from tandem.control.body import (
    INDEX,
    as_tensor,
    call_region,
    device_of,
    inside_body,
    region_or_python,
    spec,
    take_down,
    where_made,
)  # fmt: skip
from tandem.control.branches import _one, _truth
from tandem.control.mode import deferred, is_captured
from tandem.errors import ShapeError, UnsupportedError, ValueRangeError
from tandem.tensors.constructors import tensor
from tandem.tree import flatten, unflatten


def _number(value, like):
    return tensor(value, dtype=like.dtype)


def _pair(name: str, result):
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise ShapeError(
            name, "the function must give a pair: what is carried on, and what this step adds to the results"
        )
    return result


def _length(name: str, xs: list, paths: list[str], length) -> int:
    for x, path in zip(xs, paths, strict=True):
        if x.ndim == 0:
            raise ShapeError(name, f"xs{path} has no axis to go along; it is 0-d")
        if length is None:
            length = x.shape[0]
        elif x.shape[0] != length:
            raise ShapeError(name, f"xs{path} has length {x.shape[0]}, but {length} steps are to be made")
    if length is None:
        raise ValueRangeError(name, "there are no xs, so the number of steps is not known", fix="pass length=")
    return length


def scan(f, init, xs=None, length: int | None = None, reverse: bool = False):
    """Carries a value through steps: f(carry, x) -> (carry, y) for each row x of xs. Gives the last carry and the stacked ys.

    init, xs and y are tensors or containers of them; carry keeps its shapes and dtypes. Without xs, `length` steps are made and x
    is None. With reverse, from the last row to the first. In a compiled function or a graph the steps are one native loop.

    >>> td.scan(lambda total, x: (total + x, total), td.tensor(0.0), td.tensor([1.0, 2.0, 3.0]))
    (tensor(6.), tensor([0., 1., 3.]))
    """
    return _scan("scan", f, init, xs, length, reverse, is_captured())


def native_scan(f, init, xs, reverse: bool = False):
    """scan as one native loop in eager code too: for bodies that are known to be operators only."""
    return _scan("scan", f, init, xs, None, reverse, True)


def _scan(name: str, f, init, xs, length, reverse: bool, native: bool):
    recorder = deferred(init, xs, f)
    if recorder is not None:
        from tandem.control.graphs import record_scan

        return record_scan(recorder, name, f, init, xs, length, reverse)
    carry, structure = flatten(init)
    carry = [as_tensor(name, leaf) for leaf in carry]
    rows, row_structure = flatten(xs)
    rows = [as_tensor(name, leaf) for leaf in rows]
    steps = _length(name, rows, row_structure.paths(), None if length is None else int(length))
    region = lambda: _native_scan(name, f, carry, structure, rows, row_structure, steps, reverse)
    if steps == 0:
        return region()
    python = lambda: _python_scan(name, f, carry, structure, rows, row_structure, steps, reverse)
    return region_or_python(region, python) if native else python()


def _python_scan(name: str, f, carry, structure, rows, row_structure, steps: int, reverse: bool):
    made: list[list] = []
    ys_structure = None
    for t in reversed(range(steps)) if reverse else range(steps):
        after, y = _pair(name, f(unflatten(structure, carry), unflatten(row_structure, [x[t] for x in rows])))
        carry = [as_tensor(name, v) for v in check.carried(name, "carry", after, structure, carry, _number)]
        leaves, ys_structure = flatten(y)
        made.append([as_tensor(name, leaf) for leaf in leaves])
    if reverse:
        made.reverse()
    return unflatten(structure, carry), unflatten(
        ys_structure, [F.stack(list(column), 0) for column in zip(*made, strict=True)]
    )


def _native_scan(name: str, f, carry, structure, rows, row_structure, steps: int, reverse: bool):
    state = _runtime.default_generator().get_state()
    grad = any(t.requires_grad for t in [*carry, *rows])
    ys_structure = None

    def body(*values):
        at = len(carry)
        return f(unflatten(structure, values[:at]), unflatten(row_structure, values[at:-1]))

    def finish(result):
        nonlocal ys_structure
        after, y = _pair(name, result)
        after = check.carried(name, "carry", after, structure, carry, _number)
        leaves, ys_structure = flatten(y)
        return [*after, *leaves]

    inputs = [*(spec(t, grad) for t in carry), *(spec(t, grad, t.shape[1:]) for t in rows), INDEX]
    result = take_down(name, body, inputs, finish, device_of([*carry, *rows]))
    if not result.leaves:
        return unflatten(structure, []), unflatten(ys_structure, [])
    made = call_region("scan", [result.taken], [*carry, *rows], state, carried=len(carry), scanned=len(rows),
                       extent=steps, reverse=reverse)  # fmt: skip
    made = where_made(made, result)
    return unflatten(structure, made[: len(carry)]), unflatten(ys_structure, made[len(carry) :])


def map(f, xs):
    """f of each row of xs, stacked. f sees one row at a time; containers come and go as for scan.

    >>> td.map(lambda x: x * x, td.tensor([1.0, 2.0]))
    tensor([1., 4.])
    """
    return _scan("map", lambda _, x: (None, f(x)), None, xs, None, False, is_captured())[1]


def fori_loop(lower, upper, body, init):
    """body(i, carry) -> carry for i from lower up to, not including, upper. Bounds are numbers or tensors with one element.

    >>> td.fori_loop(0, 4, lambda i, x: x * 2, td.tensor(1.0))
    tensor(16.)
    """
    fixed = isinstance(lower, int) and isinstance(upper, int)
    recorder = deferred(lower, upper, init, body)
    if recorder is None and not is_captured():
        return _python_fori(body, init, int(lower), int(upper))
    if not fixed:

        def step(i, carry):
            return i + 1, body(i, carry)

        first = lower if not isinstance(lower, int) else tensor(lower) if recorder is None else lower
        return while_loop(lambda i, carry: i < upper, step, (first, init))[1]
    steps = max(upper - lower, 0)
    if recorder is not None:
        from tandem.control.graphs import record_scan

        return record_scan(
            recorder, "fori_loop", None, init, None, steps, False, lambda i, c: body(i + lower if lower else i, c)
        )[0]
    return region_or_python(
        lambda: _native_fori(body, init, lower, steps), lambda: _python_fori(body, init, lower, upper)
    )


def _python_fori(body, init, lower: int, upper: int):
    carry, structure = flatten(init)
    carry = [as_tensor("fori_loop", leaf) for leaf in carry]
    for i in range(lower, upper):
        after = body(tensor(i), unflatten(structure, carry))
        carry = [
            as_tensor("fori_loop", v) for v in check.carried("fori_loop", "carry", after, structure, carry, _number)
        ]
    return unflatten(structure, carry)


def _native_fori(body, init, lower: int, steps: int):
    carry, structure = flatten(init)
    carry = [as_tensor("fori_loop", leaf) for leaf in carry]
    state = _runtime.default_generator().get_state()
    grad = any(t.requires_grad for t in carry)

    def once(*values):
        i = values[-1] + lower if lower else values[-1]
        return body(i, unflatten(structure, values[:-1]))

    finish = lambda result: check.carried("fori_loop", "carry", result, structure, carry, _number)
    result = take_down("fori_loop", once, [*(spec(t, grad) for t in carry), INDEX], finish, device_of(carry))
    if not carry:
        return unflatten(structure, [])
    made = call_region("scan", [result.taken], carry, state, carried=len(carry), extent=steps)
    return unflatten(structure, where_made(made, result))


def _caller(init, *functions):
    """How loop functions take their variables: one by one where init is a list or tuple, unless they have one parameter."""
    if not isinstance(init, (list, tuple)) or hasattr(init, "_fields"):
        return lambda fn, value: fn(value)
    if len(init) != 1 and all(_takes_one(fn) for fn in functions):
        return lambda fn, value: fn(value)
    return lambda fn, value: fn(*value)


def _takes_one(fn) -> bool:
    import inspect  # takes a tenth of the time of `import tandem`

    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = [p.kind for p in parameters if p.default is p.empty]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return len(kinds) == 1 and kinds[0] in positional and all(p.kind in positional for p in parameters)


def while_loop(cond_fn, body_fn, init, maximum: int | None = None, vary: bool = False):
    """Repeats variables = body_fn(*variables) while cond_fn(*variables) is true. Gives the variables at the end.

    init: the variables, a list or tuple whose items are passed one by one (or together, if the functions have one parameter), or
    a single tensor or dict. maximum: stop after so many iterations. Variables keep their shapes and dtypes; with vary=True sizes
    may change: then the loop runs in Python in a compiled function too, which is compiled in pieces around it, and by the
    primitives of dataflow in a graph (where there are no gradients of it).

    The number of iterations may depend on values, also where gradients are asked for: they run the loop again and keep each
    iteration's values, so memory grows with their number.

    >>> td.while_loop(lambda i, x: x < 100, lambda i, x: (i + 1, x * 3), (td.tensor(0), td.tensor(1.0)))
    (tensor(5), tensor(243.))
    """
    name = "while_loop"
    call = _caller(init, cond_fn, body_fn)
    single = isinstance(init, (list, tuple)) and len(init) == 1

    def again(value, result):
        return type(value)([result]) if single and not isinstance(result, (list, tuple)) else result

    body = lambda value: again(value, call(body_fn, value))
    test = lambda value: call(cond_fn, value)
    recorder = deferred(init, cond_fn, body_fn)
    if recorder is not None:
        from tandem.control.graphs import record_while

        return record_while(recorder, test, body, init, maximum, vary)
    variables, structure = flatten(init)
    variables = [as_tensor(name, leaf) for leaf in variables]
    if vary and inside_body():
        raise UnsupportedError(
            name,
            "shapes that change are not possible inside another loop, a branch or a transform: these run without Python",
            fix="give the variables their final shapes at the start, or call the loop outside",
        )
    python = lambda: _python_while(name, test, body, variables, structure, maximum, vary)
    if is_captured() and not vary:
        return region_or_python(lambda: _native_while(test, body, variables, structure, maximum), python)
    return python()


def _python_while(name: str, test, body, variables, structure, maximum, vary: bool):
    count = 0
    while (maximum is None or count < maximum) and _truth(name, test(unflatten(structure, variables))):
        after, made = flatten(body(unflatten(structure, variables)))
        if vary and made == structure:
            variables = [as_tensor(name, v) for v in after]
        else:
            after = unflatten(made, after)
            variables = [
                as_tensor(name, v) for v in check.carried(name, "variable", after, structure, variables, _number)
            ]
        count += 1
    return unflatten(structure, variables)


def _native_while(test, body, variables, structure, most):
    name = "while_loop"
    if not variables:
        raise ValueRangeError(name, "there are no variables, so the loop could not end")
    state = _runtime.default_generator().get_state()
    grad = any(t.requires_grad for t in variables)
    inputs = [*(spec(t, grad) for t in variables), INDEX]

    def condition(*values):
        return _one(name, test(unflatten(structure, values[:-1]))).astype(dtypes.bool_)

    finish = lambda result: check.carried(name, "variable", result, structure, variables, _number)
    device = device_of(variables)
    cond = take_down(name, condition, inputs, device=device)
    result = take_down(name, lambda *values: body(unflatten(structure, values[:-1])), inputs, finish, device)
    made = call_region(name, [cond.taken, result.taken], variables, state, carried=len(variables), extent=most)
    return unflatten(structure, where_made(made, result))
