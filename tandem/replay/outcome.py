"""What a call has done, compared with the state before it: results, gradients, rebound places, or an effect that would be lost."""

from __future__ import annotations

from tandem import _runtime
from tandem.errors import UnsupportedError
from tandem.replay.state import (
    CELL,
    DICT,
    ENTRY,
    FROM_OBJECT,
    IDENTITY,
    NUMBER,
    SEQUENCE,
    TENSOR,
    TYPE,
    State,
)  # fmt: skip

Tensor = _runtime.Tensor
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), range, slice)


class Outcome:
    """Of a call that began in `state` and gave `result`."""

    def __init__(self, state: State, sources, record, args: tuple, kwargs: dict, result):
        self.state, self.record = state, record
        self._used: set[int] = set()
        self._rebound: dict[int, tuple] = {}  # number of a tensor -> where its successor lies
        self.places: list[tuple] = []
        self.facts = list(state.facts)
        self._check_arguments(args, kwargs)
        for number in _runtime.broken_facts(state.facts):
            self._rebind(number)
        for number, (owner, key) in self._rebound.items():
            sources.retarget(number, owner, key)
        for number, found in enumerate(state.tensors):
            self._gradient(number, found)
        self.result = self._shape(result, "the result")
        self.bound = self._bind_rates()
        lost = set(range(record.num_outputs)) - self._used
        if lost:
            self._refuse("it keeps a tensor that it computes where a replay would not put it (an object that is made at every "
                         "call, or the history of a tensor)")  # fmt: skip

    def _refuse(self, what: str, fix: str = "do that outside of the function, or leave out replay=True"):
        raise UnsupportedError("compile", f"{self.state.name} cannot be replayed: {what}", fix=fix)

    def _check_arguments(self, args: tuple, kwargs: dict):
        def same(shape, o) -> bool:
            if shape[0] == 0:
                return isinstance(o, Tensor)
            if shape[0] in (1, 2):
                return o is shape[1] or _runtime.same_value(o, shape[1])
            if len(o) != len(shape[1]) or (shape[0] == 5 and list(o) != shape[2]):
                return False
            return all(map(same, shape[1], o.values() if shape[0] == 5 else o))

        if not (same(self.state.args, args) and same(self.state.kwargs, kwargs)):
            self._refuse("it changes a container among its arguments")

    # -- places that hold other objects than before

    def _rebind(self, number: int):
        kind, of, keys, values, compare = self.facts[number]
        path = self.state.paths[number]
        if (
            number >= self.state.first_own
        ):  # a cache or a counter of Tandem's own: a fact that always holds takes its place
            self.facts[number] = (TYPE, path, (), (str,), b"")
            return
        if kind == DICT:
            now = dict(of)
            if tuple(now) != keys:
                gone = [k for k in keys if k not in now] or [k for k in now if k not in keys]
                self._lost(f"{path}[{gone[0]!r}]" if gone else path)
            now = tuple(now.values())
        elif kind == SEQUENCE:
            now, keys = tuple(of), tuple(range(len(of)))
            if len(now) != len(values):
                self._lost(path)
        elif kind == ENTRY:
            if keys[0] not in of or not values:
                self._lost(path)
            now = (of[keys[0]],)
        else:
            if kind == CELL and values:
                path = f"the variable {path}"
            self._lost(path)
        how = bytearray(compare)
        for i, (before, after) in enumerate(zip(values, now, strict=True)):
            if after is before or (how[i] != IDENTITY and _runtime.same_value(after, before)):
                continue
            name = f"{path}[{keys[i]!r}]" if kind in (DICT, SEQUENCE) else path
            output = self.record.output_of(after) if isinstance(after, Tensor) and isinstance(before, Tensor) else -1
            if output < 0:
                self._lost(name)
            how[i] = TENSOR
            self.places.append((of, keys[i], -1, self._tensor(after, name)))
            was = self.state.number_of(before)
            if was >= 0:
                if was in self._rebound or self.state.tensors[was].origin != FROM_OBJECT:
                    self._refuse(f"{name} is rebound, and the tensor it held is read elsewhere, too")
                self._rebound[was] = of, keys[i]
        self.facts[number] = (kind, of, self.facts[number][2], values, bytes(how))

    def _lost(self, path: str):
        self._refuse(f"{path} changes while it runs, and a replay would not change it")

    def _gradient(self, number: int, found):
        before = next((t.tensor for t in self.state.gradients_of(number)), None)
        after = found.tensor.grad
        if after is before:
            return
        shape = None if after is None else self._tensor(after, f"{found.path}.grad")
        self.places.append((None, None, number, shape))

    # -- results

    def _tensor(self, t, path: str) -> tuple:
        output = self.record.output_of(t)
        if output < 0:
            number = self.state.number_of(t)
            if number < 0:
                self._refuse(f"{path} is a tensor that its program does not compute (a view of one that was there before, or one "
                             "made of Python values)", "return a clone() of it")  # fmt: skip
            return (1, number)
        state = _runtime.history_state(t)
        if state == 2 or (t.requires_grad and state == 0):
            self._refuse(f"gradients may still flow back from {path} when it has returned",
                         "call backward() in the function, return x.detach(), or run it under td.no_grad()")  # fmt: skip
        if type(t) is not Tensor or t.grad is not None or _runtime.has_hooks(t):
            self._refuse(f"{path} is a {type(t).__name__} with a gradient or hooks, or of a subclass")
        self._used.add(output)
        return (0, t, output)

    def _shape(self, o, path: str) -> tuple:
        if isinstance(o, Tensor):
            return self._tensor(o, path)
        if isinstance(o, _PLAIN) or self.state.knows(o):
            return (2, o)
        if type(o) in (tuple, list):
            return (3 if type(o) is tuple else 4, [self._shape(item, f"{path}[{i}]") for i, item in enumerate(o)])
        if type(o) is dict:
            return (5, [self._shape(item, f"{path}[{k!r}]") for k, item in o.items()], list(o))
        if isinstance(o, tuple) and hasattr(o, "_fields"):
            return (6, [self._shape(item, f"{path}.{k}") for k, item in zip(o._fields, o, strict=True)], type(o))
        return self._refuse(f"{path} is a {type(o).__name__}, an object that it makes at every call",
                     "return tensors, numbers, and tuples, lists and dicts of them")  # fmt: skip

    # -- learning rates

    def _bind_rates(self) -> list[tuple]:
        floats = self.record.floats()
        bound = []
        for group, name in self.state.free_rates():
            numbers = [number for number, address in floats if address == id(group[name])]
            if not numbers:
                continue
            bound += [(number, group, name) for number in numbers]
            for i, (kind, of, keys, values, compare) in enumerate(self.facts):
                if kind == DICT and of is group:
                    how = bytes(NUMBER if key == name else c for key, c in zip(keys, compare, strict=True))
                    self.facts[i] = (kind, of, keys, values, how)
        return bound
