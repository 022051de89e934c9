"""Updates of many parameters as one call.

Note [Updates together]
On a device a small update costs its launch. So the updates of a step that have one rule and the same settings are collected and
go out as calls of an operator that takes many parameters, whose kernels are launched as one (codegen/cuda/batch.py). Tensors that
lie alike are given as one flat axis: whatever the shapes, a plan serves every so many parameters. In a compiled function calls
are captured singly, and the program puts them together.
"""

from __future__ import annotations

import functools

from tandem import _runtime
from tandem.ops.define import ParameterSpec, make_function

_COUNTS = (32, 8)  # parameters of a call; what is left over goes singly


class Together:
    """The updates of one step of a group."""

    def __init__(self):
        self._waiting: dict[tuple, list[tuple]] = {}
        self._last: tuple = (
            None,
            None,
            None,
            [],
        )  # rule, settings, kind and list of the last one: mostly the next one's too

    def add(self, rule, settings: tuple, tensors: tuple) -> bool:
        """Takes rule(*tensors, *settings) on; False if it has to be called as it is."""
        flat = _runtime.flat_alike(tensors) if rule.role.elementwise else None
        if flat is None:
            return False
        last_rule, last_settings, kind, waiting = self._last
        if last_rule is not rule or last_settings is not settings or kind != flat[0]:
            waiting = self._waiting.setdefault((rule, settings, flat[0]), [])
            self._last = rule, settings, flat[0], waiting
        waiting.append(flat[1:])
        if len(waiting) == _COUNTS[0]:
            self._call(rule, settings, waiting)
            waiting.clear()
        return True

    def flush(self):
        for (rule, settings, _), waiting in self._waiting.items():
            for count in _COUNTS[1:]:
                while len(waiting) >= count:
                    self._call(rule, settings, waiting[:count])
                    del waiting[:count]
            for tensors in waiting:
                rule(*tensors, *settings)
        self._waiting.clear()

    @staticmethod
    def _call(rule, settings: tuple, updates: list[tuple]):
        _many(rule, len(updates))(*[t for operand in zip(*updates, strict=True) for t in operand], *settings)


@functools.cache
def _many(rule, count: int):
    """The rule for `count` parameters: all parameters, then each kind of state, then all gradients, then the settings."""
    fn, writes = rule.__wrapped__.__wrapped__, rule.writes
    tensors = count * (writes + 1)

    def body(*args):
        made = [fn(*args[i:tensors:count], *args[tensors:]) for i in range(count)]
        made = [m if isinstance(m, tuple) else (m,) for m in made]
        return tuple(m[k] for k in range(writes) for m in made)

    operands = [
        ParameterSpec(f"{p.name}_{i}", p.kind, True, None, False)
        for p in rule.parameters[: writes + 1]
        for i in range(count)
    ]
    return make_function(rule.__name__, body, [*operands, *rule.parameters[writes + 1 :]], None, writes * count)
