"""Functions captured once, as operator functions that compute something made from them.

As with loops (tandem/control/body.py) the function's Python code runs at every call, on deferred tensors, and what was captured
finds the operator function again. So closures, modules and parameters are looked at afresh every time, and gradients reach them.
"""

from __future__ import annotations

from tandem import _runtime
from tandem.control.body import _PARAMETERS, Body, Bound, Result, _digest, device_of, take_down
from tandem.ops.define import Role, make_function
from tandem.program.report import budget_of

_functions: dict = {}
_MOST_FUNCTIONS = 512


def take(name: str, fn, specs: list[tuple], operands: list) -> tuple[Result, tuple]:
    """fn as it was captured on tensors of these (dtype, shape, requires_grad), where the operands are, and the generator's
    state before."""
    state = _runtime.default_generator().get_state()
    return take_down(name, fn, specs, device=device_of(operands)), state


def prepare(name: str, result: Result, operands: int, state: tuple, settings: tuple, build, recompute: bool = False):
    """The operator function of build(body, operands, consts, generator) -> values, of so many operands and then the constants of
    what was captured. `settings` tell builds apart."""
    taken = result.taken
    recording = _runtime.grad_enabled()
    key = (name, (taken.key,), settings, operands, recording, budget_of(None))
    function = _functions.get(key)
    if function is None:
        body = Body(taken, list(range(len(taken.consts))), len(taken.consts), 0, recording)

        def fn(tensors, numbers, ints, generator):
            consts = [*tensors[operands:], *numbers]
            return tuple(build(Bound(body, ints), tensors[:operands], consts, generator))

        if len(_functions) >= _MOST_FUNCTIONS:
            del _functions[next(iter(_functions))]
        function = _functions[key] = make_function(
            name, fn, _PARAMETERS, role=Role(whole=True, recompute=recompute), digest=_digest(key, [body])
        )
    if taken.draws:
        _runtime.default_generator().set_state(state)
    return function


def call(
    name: str, result: Result, operands: list, state: tuple, settings: tuple, build, recompute: bool = False
) -> list:
    """Calls the operator function that `prepare` gives."""
    function = prepare(name, result, len(operands), state, settings, build, recompute)
    taken = result.taken
    made = function([*operands, *taken.consts], taken.plain_numbers(), taken.all_ints())
    return list(made) if isinstance(made, tuple) else [made]
