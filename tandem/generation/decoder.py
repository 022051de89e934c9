"""A model, a cache, and the step that both take together, as one compiled program."""

from __future__ import annotations

import weakref

import tandem as td
from tandem.errors import ShapeError, ValueRangeError
from tandem.generation.cache import Cache, StaticCache

# Programs of one model: prompts and single tokens, alone and in batches, every kind of cache, sizes that happen to be equal.
LIMIT = 64
_steps: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # model -> its compiled step, for all caches


def step_of(model):
    """The compiled step of a model: (cache, tokens (n, t), positions (n, t), seen, which) -> scores.

    which: of each row, the token whose scores are wanted (n); None: all of them, (n, t, vocabulary).
    """
    found = _steps.get(model)
    if found is None:
        reference = weakref.ref(model)

        def step(cache, tokens, positions, seen, which):
            cache.begin(positions, seen)
            hidden = reference().hidden(tokens, cache)
            if which is not None:
                hidden = (
                    hidden[:, -1]
                    if isinstance(which, int)
                    else td.take_along_dim(hidden, which[:, None, None], 1)[:, 0]
                )
            return reference().scores(hidden)

        found = _steps[model] = td.compile(step, recompile_limit=LIMIT)
    return found


class Decoder:
    """lengths: tokens so far, per row."""

    def __init__(self, model, cache: Cache):
        self.model, self.cache = model, cache
        self.step = step_of(model)
        self.device = next(iter(model.parameters())).device  # tokens and positions are made there
        self.lengths: list[int] = []

    @classmethod
    def static(cls, model, batch: int, length: int) -> Decoder:
        layers, heads, width = model.cache_sizes
        length += 1  # a step never sees all slots, which would be a program of its own
        parameter = next(iter(model.parameters()))
        return cls(model, StaticCache(layers, batch, heads, length, width, parameter.dtype, parameter.device))

    def prefill(self, prompts: list[list[int]]):
        """Takes in prompts of any lengths, from position 0; scores (n, vocabulary) of what follows each."""
        self.lengths = [len(p) for p in prompts]
        longest = max(self.lengths)
        tokens = td.tensor([list(p) + [0] * (longest - len(p)) for p in prompts], device=self.device)
        positions = td.arange(longest, device=self.device).expand(len(prompts), longest)
        even = min(self.lengths) == longest
        which = -1 if even else td.tensor(self.lengths, device=self.device) - 1
        return self.step(self.cache, tokens, positions, longest, which)

    def extend(self, tokens, everything: bool = False):
        """Takes in t more tokens of every row, (n, t); scores (n, vocabulary) of what follows, or (n, t, vocabulary) of all."""
        count = tokens.shape[1]
        positions = td.tensor([[n + i for i in range(count)] for n in self.lengths], device=self.device)
        self.lengths = [n + count for n in self.lengths]
        return self.step(self.cache, tokens.to(self.device), positions, max(self.lengths), None if everything else -1)

    def rewind(self, lengths: list[int]):
        """Goes back to shorter sequences; later slots are not looked at."""
        self.lengths = list(lengths)


def as_prompts(tokens) -> list[list[int]]:
    """(n, t) tensors and lists of lists or tensors of any lengths, as lists."""
    prompts = [[int(t) for t in (row.tolist() if hasattr(row, "tolist") else row)] for row in tokens]
    if not prompts or not all(prompts):
        raise ShapeError("generate", "every prompt must have at least one token")
    return prompts


def check_count(count: int):
    if count < 0:
        raise ValueRangeError("generate", f"count is {count}; it must be 0 or more")
