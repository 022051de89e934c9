"""td.autobatch: code written for one example, run in batches.

See Note [Autobatch] in src/autobatch/batch.h.
"""

from __future__ import annotations

import functools
import threading

from tandem import _runtime
from tandem.errors import DTypeError
from tandem.switches import EAGER


class _Place(threading.local):
    scope = None  # the innermost that is entered here


_place = _Place()


class Autobatch:
    """A scope in which operators are deferred; what `td.autobatch()` gives. `groups` and `calls` say what has run so far."""

    def __init__(self):
        self._scope = None
        self._outer = None
        self.examples = 0  # calls of decorated functions

    def __enter__(self):
        if self._scope is not None:
            raise DTypeError("autobatch", "this scope is entered already", fix="make another one: td.autobatch()")
        self._outer = _place.scope
        if EAGER:
            return self
        self._scope = _runtime.BatchScope()
        self._scope.enter()
        _place.scope = self
        return self

    def __exit__(self, kind, error, trace):
        if self._scope is None:
            return
        _place.scope = self._outer
        scope, self._scope = self._scope, None
        try:
            scope.exit(kind is None)
        finally:
            self._groups, self._calls = scope.groups, scope.calls

    @property
    def groups(self) -> int:
        """How many operators have run in place of the calls."""
        return self._groups if self._scope is None else self._scope.groups

    @property
    def calls(self) -> int:
        """How many calls have run."""
        return self._calls if self._scope is None else self._scope.calls

    _groups = _calls = 0

    def _example(self, fn, args, kwargs):
        """One of the decorated functions called in this scope: errors name its number."""
        before = self._scope.set_example(self.examples)
        self.examples += 1
        try:
            return fn(*args, **kwargs)
        finally:
            self._scope.set_example(before)


def autobatch(fn=None):
    """Defers the operators called inside, and runs those that are alike as one: as a scope, or around a function.

    Code is written for one example: recursion over trees, loops over sequences of any length, branches. Inside, operators only note
    what they are to compute; when a value is read, by backward() or at the end, calls of the same operator with the same shapes,
    static arguments and parameters run together, as one operator on operands with one axis more. Results are those of the same
    code without it, but for the order in which floating-point numbers are added up. backward() is batched in the same way: a weight
    that all members of a group share gets one gradient from it.

    What has no batching rule runs call by call. Reading a value (`if x > 0`, item()) runs what that value needs, and nothing else.
    In-place operators on tensors that something deferred depends on run everything that is deferred. In functions for td.compile
    it does nothing: there, operators are captured for one program.

    As a decorator, a function called outside of a scope has one of its own. In a scope, its calls are the examples, and errors
    that are found when a group runs name the number of theirs.

    >>> w = td.ones(2, 2)
    >>> def total(tree):
    ...     return tree if isinstance(tree, td.Tensor) else td.tanh(sum(total(child) for child in tree) @ w)
    >>> a = td.ones(2)
    >>> with td.autobatch() as batch:
    ...     roots = [total([a, [a, a]]), total([[a, a], [a, a, a]]), total([a, a])]
    >>> batch.calls, batch.groups
    (25, 9)
    """
    if fn is None:
        return Autobatch()
    if not callable(fn):
        raise DTypeError(
            "autobatch",
            f"a {type(fn).__name__} cannot be called",
            fix="decorate a function, or use `with td.autobatch():`",
        )

    @functools.wraps(fn)
    def wrapped(*args, **kwargs):
        scope = _place.scope
        if scope is not None:
            return scope._example(fn, args, kwargs)
        with Autobatch():
            return fn(*args, **kwargs)

    return wrapped
