"""The step of a model with a cache, compiled: scores of tokens, or the tokens that follow.

Note [Steps that come again]
A step's Python code is a good part of a small model's time. So calls of sizes that came REPLAYED times are replayed without it; the
call that is observed for this costs what some tens of others do.
"""

from __future__ import annotations

import tandem as td
from tandem.errors import UnsupportedError
from tandem.generation.sampling import Sampling
from tandem.generation.sampling import choose as next_tokens
from tandem.replay.replayed import Replayed

# Programs of one model: prompts and single tokens, alone and in batches, every kind of cache, sizes that happen to be equal.
LIMIT = 64
REPLAYED = 16
_KEPT = 32  # calls of different sizes that are known at a time
_ATTRIBUTE = "_generation_step"


class Step:
    """Of one model, for all caches. It lies with the model, so that both go together; copies of the model have their own."""

    __slots__ = ("_came", "_choose", "_replays", "_scores")  # without attributes that a replay would have to look at

    def __init__(self, model):
        def scores(kind, state, tokens, positions, seen, which):
            hidden = model.hidden(tokens, kind(state, positions, seen))
            if which is not None:
                hidden = (
                    hidden[:, -1]
                    if isinstance(which, int)
                    else td.take_along_dim(hidden, which[:, None, None], 1)[:, 0]
                )
            return model.scores(hidden)

        def choose(kind, state, tokens, positions, seen, settings, generator):
            found = scores(kind, state, tokens, positions, seen, -1)
            return next_tokens(found, settings, generator), positions + 1

        self._scores, self._choose = (
            Replayed(f, name=f"{f.__name__} of {type(model).__name__}", recompile_limit=LIMIT) for f in (scores, choose)
        )
        self._scores.most_calls = self._choose.most_calls = _KEPT
        self._came: dict[tuple, int] = {}
        self._replays = True

    def __deepcopy__(self, memo):
        return None

    def __reduce__(self):
        return type(None), ()

    def scores(self, cache, tokens, positions, seen: int, which=None):
        """tokens, positions (n, t) -> (n, t, vocabulary).

        which: of each row, the token whose scores are wanted (n); the result is (n, vocabulary).
        """
        return self._call(self._scores, cache.Step, cache.state, tokens, positions, seen, which)

    def choose(self, cache, tokens, positions, seen: int, sampling: Sampling, generator=None):
        """tokens, positions (n, 1) -> the tokens that follow, and the positions after these."""
        return self._call(self._choose, cache.Step, cache.state, tokens, positions, seen, sampling.settings, generator)

    def _call(self, fn: Replayed, kind: type, state: tuple, tokens, positions, seen: int, *others):
        key = fn is self._choose, kind, state[0][0].shape, tokens.shape, seen
        count = self._came[key] = self._came.pop(key, 0) + 1
        if len(self._came) > _KEPT:
            del self._came[next(iter(self._came))]
        if self._replays and count > REPLAYED:
            try:
                return fn(kind, state, tokens, positions, seen, *others)
            except UnsupportedError:  # its code does what a replay would lose; slots are written again with the same
                self._replays = False
        return fn.once(kind, state, tokens, positions, seen, *others)

    def explain(self) -> str:
        return "\n".join(fn.explain() for fn in (self._scores, self._choose))


def step_of(model) -> Step:
    """The compiled step of a model."""
    found = model.__dict__.get(_ATTRIBUTE)
    if found is None:
        found = Step(model)
        object.__setattr__(model, _ATTRIBUTE, found)
    return found
