"""A compiled function whose Python code runs only when something that it reads has changed.

Note [Observed calls]
The first call is observed: which instructions run (observe.py). From the second on it is known where to look: all that these
instructions can reach is written down before the call (state.py) and compared after it (outcome.py). What changed by itself, and is
no tensor that the program computes, is an effect that a replay would lose: an error names it. So is what cannot be watched.
Then calls are replayed, as long as every fact holds (src/capture/call_replay.h); one that does not hold leads back here, where
the call is observed again. An instruction that was not seen before is followed from the next call on.
"""

from __future__ import annotations

from tandem import _runtime
from tandem.compiling.compiled import Compiled
from tandem.errors import RecompileWarning, UnsupportedError, warn
from tandem.ops.host_call import calls_made
from tandem.replay.observe import Observation
from tandem.replay.outcome import Outcome
from tandem.replay.state import State
from tandem.switches import EAGER

_PATIENCE = 16  # calls in a row that could not be replayed, before a warning


class Replayed(Compiled):
    """A compiled function that is replayed. Call it like the function itself."""

    most_calls = 8  # that are kept

    def __init__(self, *settings, **named):
        super().__init__(*settings, **named)
        self._observed = Observation()
        self._calls: list[tuple] = []  # (replay, paths of its facts), the last that served first
        self._count = self._in_a_row = self._problems = 0
        self._why = ""

    def __call__(self, *args, **kwargs):
        if EAGER or _runtime.capturing():
            return self._fn(*args, **kwargs)
        for number, (replay, _) in enumerate(self._calls):
            result = replay.run(args, kwargs)
            if result is not replay:
                self._in_a_row = 0
                if number:
                    self._calls.insert(0, self._calls.pop(number))
                return result
        return self._observe(args, kwargs)

    def once(self, *args, **kwargs):
        """A call whose Python code runs, and is not observed."""
        return super().__call__(*args, **kwargs)

    def _observe(self, args: tuple, kwargs: dict):
        if _runtime.anomaly_detection():  # looks at every result
            return self.once(*args, **kwargs)
        if self._calls:
            replay, paths = self._calls[0]
            self._why = f"{paths[replay.broken]} has changed" if replay.broken >= 0 else replay.why
            self._in_a_row += 1
            if self._in_a_row == _PATIENCE:
                warn(
                    f"{self._name} was compiled with replay=True, and its Python code ran at each of the last {_PATIENCE} calls: "
                    f"{self._why}\n  fix: leave out replay=True, or give what changes as a tensor",
                    RecompileWarning,
                )
        state = State(self._name, self._fn, args, kwargs, self._observed) if self._count else None
        sources = None if state is None else state.sources()
        record = _runtime.CallRecord()
        record.add_stream(None)
        for generator in () if state is None else state.generators:
            record.add_stream(generator)
        seen = Observation()
        self._count += 1
        self._record = record
        host_calls = calls_made()
        result = seen.call(self._run, args, kwargs)
        if calls_made() != host_calls:
            self._refuse("it runs a vertex program, whose structure a replay would not look at")
        if not self._observed.merge(seen) or state is None:
            return result  # what is new was not watched
        state.check_codes(seen)
        if record.problem:
            self._problems += 1
            if self._problems == 1:  # what is made once, such as the state of an optimiser, is not in the way for long
                return result
            self._refuse(record.problem)
        if record.programs != 1:
            self._refuse("it computes nothing" if not record.programs else "it is several programs")
        outcome = Outcome(state, sources, record, args, kwargs, result)
        replay = _runtime.CallReplay(record, sources)
        problem = replay.describe(
            record, outcome.facts, state.args, state.kwargs, outcome.places, outcome.bound, outcome.result
        )
        if problem:
            self._refuse(problem)
        self._calls.insert(0, (replay, state.paths))
        del self._calls[self.most_calls :]
        return result

    def _refuse(self, what: str):
        raise UnsupportedError(
            "compile", f"{self._name} cannot be replayed: {what}",
            fix="do that outside of the function, or leave out replay=True",
        )  # fmt: skip

    def _run(self, *args, **kwargs):
        return self._captured(args, kwargs, self._record)

    def explain(self) -> str:
        """What Compiled.explain() tells, and how often calls were replayed."""
        replays = sum(replay.replays for replay, _ in self._calls)
        text = f"\nreplay: {len(self._calls)} calls known, replayed {replays} times; the Python code ran {self._count} times"
        return super().explain() + text + (f"\n  last time because: {self._why}" if self._why else "")
