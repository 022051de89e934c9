"""Candidate samplers: classes drawn in place of all of them, and how often each is expected (TensorFlow's names).

Draws are made at once, in compiled functions too: they are inputs of the program, not part of it.

Note [Different classes]
Draws until there are n different classes are clocks that ring: class i first after a time that is exponential with rate p_i, and
the sample is the n that ring first. Let t be when the next one does. Then class i is in the sample with probability
1 - exp(-p_i t), given all other clocks, and sums over the sample divided by these are unbiased estimates of sums over all classes
(priority sampling: Duffield, Lund, Thorup, 2007). With the number of draws up to the last class of the sample in place of t, as
TensorFlow has it, they are not: by a quarter where three of 50 classes are drawn most of the time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.autograd.modes import no_grad
from tandem.errors import UnsupportedError, ValueRangeError
from tandem.graph.ir import Value
from tandem.ops.random import Generator
from tandem.sparse.structure import at_once

Tensor = _runtime.Tensor


class Candidates(NamedTuple):
    """sampled_candidates: (n) classes; true_expected_count: shape of true_classes, sampled_expected_count: (n), how often they are
    expected in a sample."""

    sampled_candidates: Tensor
    true_expected_count: Tensor
    sampled_expected_count: Tensor


class CandidateSampler:
    """Draws classes below range_max by their probability."""

    def __init__(self, range_max: int):
        if range_max < 1:
            raise ValueRangeError(type(self).__name__, f"range_max is {range_max}; it must be positive")
        self.range_max = range_max

    def probability(self, classes):
        """Of classes (*) -> (*), float32"""
        raise NotImplementedError

    def draw(self, count: int, generator=None):
        """count classes, independent of one another."""
        raise NotImplementedError

    def observe(self, true_classes):
        """Sees the classes of a batch, before a sample is drawn."""

    @no_grad()
    def sample(self, true_classes, num_sampled: int, unique: bool = True, generator=None) -> Candidates:
        """num_sampled classes and expected counts. unique: no class twice, by drawing until there are so many.

        >>> made = td.nn.candidates.LogUniformSampler(100).sample(td.tensor([[3], [7]]), 20)
        >>> made.sampled_candidates.shape, made.true_expected_count.shape
        ((20,), (2, 1))
        """
        if unique and num_sampled > self.range_max:
            raise ValueRangeError(
                type(self).__name__, f"{num_sampled} different classes are asked for; there are {self.range_max}"
            )
        if isinstance(true_classes, Value):
            return self._in_graph(true_classes, num_sampled, unique)
        with at_once(true_classes):
            self.observe(true_classes)
            if not unique:
                sampled, time = self.draw(num_sampled, generator), num_sampled
            else:
                sampled, time = self._different(num_sampled, generator)
            return self._candidates(sampled, true_classes, time, unique)

    def _different(self, count: int, generator):
        """Classes in the order in which they were first drawn, and when the next one would be: Note [Different classes]."""
        wanted = min(count + 1, self.range_max)
        drawn = self.draw(2 * wanted, generator)
        while True:
            _, group = F.unique(drawn, return_inverse=True)
            n = drawn.shape[0]
            numbers = F.arange(n)
            first = F.full((int(F.amax(group)) + 1,), n, dtype=dtypes.int64)
            first = F.scatter_reduce(first, 0, group, numbers, "amin")
            if first.shape[0] >= wanted:
                first = F.sort(first)
                first = first[0] if isinstance(first, tuple) else first
                if wanted == count:  # all classes
                    return drawn[first[:count]], math.inf
                # Between draws lie times that are exponential with rate 1.
                gaps = -F.log1p(-F.rand((int(first[count]) + 1,), generator=generator, dtype=dtypes.float64))
                return drawn[first[:count]], F.astype(F.sum(gaps), dtypes.float32)
            drawn = F.concat([drawn, self.draw(2 * n, generator)], 0)

    def _in_graph(self, true_classes, num_sampled: int, unique: bool) -> Candidates:
        """As part of a deferred graph, which draws at every run. Different classes are those with the largest keys: the logarithm
        of a probability and Gumbel noise, which is drawing without replacement too."""
        every = self.probability(F.arange(self.range_max))
        noise = F.rand_like(
            every + 0 * F.astype(F.reshape(true_classes, (-1,))[0], every.dtype)
        )  # a node of that graph
        if not unique:
            ends = F.cumsum(every, 0)
            sampled = F.clip(F.searchsorted(ends, noise[:num_sampled], right=True), 0, self.range_max - 1)
            return self._candidates(sampled, true_classes, num_sampled, False)
        keys = F.log(every) - F.log(-F.log(F.clip(noise, 1e-20, 1 - 1e-7)))
        if num_sampled == self.range_max:
            return self._candidates(F.topk(keys, num_sampled)[1], true_classes, math.inf, True)
        keys, sampled = F.topk(keys, num_sampled + 1)
        return self._candidates(sampled[:num_sampled], true_classes, F.exp(-keys[num_sampled]), True)

    def _candidates(self, sampled, true_classes, time, unique: bool) -> Candidates:
        """time: in which classes were drawn, one on average in a unit of it."""
        expected = lambda p: -F.expm1(-p * time) if unique else p * time
        return Candidates(sampled, expected(self.probability(true_classes)), expected(self.probability(sampled)))


class LogUniformSampler(CandidateSampler):
    """P(k) = (log(k + 2) - log(k + 1)) / log(range_max + 1): Zipf's law for classes sorted by falling frequency."""

    def probability(self, classes):
        k = F.astype(classes, dtypes.float32)
        return F.log1p(1 / (k + 1)) / math.log(self.range_max + 1)

    def draw(self, count, generator=None):
        u = F.rand((count,), generator=generator, dtype=dtypes.float64)
        return F.clip(F.astype(F.exp(u * math.log(self.range_max + 1)), dtypes.int64) - 1, 0, self.range_max - 1)


class UniformSampler(CandidateSampler):
    """All classes alike."""

    def probability(self, classes):
        return F.full(classes.shape, 1 / self.range_max, dtype=dtypes.float32)

    def draw(self, count, generator=None):
        return F.randint(0, self.range_max, (count,), generator=generator)


class LearnedUnigramSampler(CandidateSampler):
    """By how often classes were seen so far, each once to begin with."""

    def __init__(self, range_max: int):
        super().__init__(range_max)
        self.counts = F.full((range_max,), 1.0, dtype=dtypes.float64)

    def _in_graph(self, true_classes, num_sampled, unique):
        raise UnsupportedError("learned_unigram_candidate_sampler", "it counts what it sees, which a deferred graph cannot",
                               fix="use log_uniform_candidate_sampler")  # fmt: skip

    def observe(self, true_classes):
        seen = F.reshape(true_classes, (-1,))
        F.index_add_(self.counts, 0, seen, F.full(seen.shape, 1.0, dtype=dtypes.float64))

    def probability(self, classes):
        return F.astype(self.counts[classes] / F.sum(self.counts), dtypes.float32)

    def draw(self, count, generator=None):
        ends = F.cumsum(self.counts, 0)
        u = F.rand((count,), generator=generator, dtype=dtypes.float64) * ends[-1]
        return F.clip(F.searchsorted(ends, u, right=True), 0, self.range_max - 1)


_LEARNED: dict[int, LearnedUnigramSampler] = {}


def _function(make, name: str, doc: str):
    def sampler(true_classes, num_true, num_sampled, unique, range_max, seed=None, name=None):
        if true_classes.ndim != 2 or true_classes.shape[1] != num_true:
            raise ValueRangeError(
                sampler.__name__,
                f"true_classes are {tuple(true_classes.shape)}; they must be (batch, num_true={num_true})",
            )
        generator = None if seed is None else Generator().manual_seed(seed)
        return make(range_max).sample(true_classes, num_sampled, unique, generator)

    sampler.__name__ = sampler.__qualname__ = name
    sampler.__doc__ = f"{doc}\n\n    true_classes: (batch, num_true) -> Candidates"
    return sampler


log_uniform_candidate_sampler = _function(LogUniformSampler, "log_uniform_candidate_sampler", LogUniformSampler.__doc__)
uniform_candidate_sampler = _function(UniformSampler, "uniform_candidate_sampler", UniformSampler.__doc__)
learned_unigram_candidate_sampler = _function(
    lambda range_max: _LEARNED.setdefault(range_max, LearnedUnigramSampler(range_max)),
    "learned_unigram_candidate_sampler",
    "By how often classes were seen in all calls with this range_max.",
)
