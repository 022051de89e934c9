"""Beam search: the likeliest of several sequences that are followed at once."""

from __future__ import annotations

import tandem as td
from tandem.errors import ValueRangeError
from tandem.generation.decoder import Decoder, as_stops


def beam_search(model, prompts: list, count: int, beams: int, stop=None) -> list[list[int]]:
    """Each prompt with the tokens, up to `count`, that have the highest mean log-probability among `beams` sequences.

    A sequence that ends with a token of `stop` is set aside; its beam goes to the next one.
    """
    stops = as_stops(stop)
    longest = max(map(len, prompts))
    if longest + count > model.context:
        raise ValueRangeError(
            "generate", f"{longest} tokens and {count} more do not fit into the context of {model.context}"
        )
    if not count:
        return [list(p) for p in prompts]
    searches = [_Search(list(p), beams, stops) for p in prompts]
    decoder = Decoder.static(model, len(prompts) * beams, longest + count)
    scores = decoder.prefill([p for p in prompts for _ in range(beams)])
    for step in range(count):
        logs = scores.log_softmax(-1).reshape(len(prompts), beams, -1)
        best, at = _candidates(logs, [s.totals for s in searches], beams * (1 + len(stops)), first=step == 0)
        for search, values, places in zip(searches, best.tolist(), at.tolist(), strict=True):
            search.advance(values, places, logs.shape[-1])
        if step == count - 1 or all(s.done(count) for s in searches):
            break
        rows = [i * beams + origin for i, s in enumerate(searches) for origin in s.origins]
        decoder.cache.reorder(td.tensor(rows, device=decoder.device))
        decoder.lengths = [decoder.lengths[r] for r in rows]
        scores = decoder.extend(td.tensor([[t[-1]] for s in searches for t in s.sequences], device=decoder.device))
    return [s.best() for s in searches]


def _candidates(logs, totals: list, count: int, first: bool):
    """The likeliest continuations of each prompt: (n, count) sums, and which beam and token each is."""
    sums = td.tensor(totals, device=logs.device)[:, :, None] + logs
    if first:  # all beams are the prompt still
        sums = sums[:, :1]
    flat = sums.reshape(sums.shape[0], -1)
    return flat.topk(min(count, flat.shape[-1]), -1)


class _Search:
    """The beams of one prompt."""

    def __init__(self, prompt: list, beams: int, stops):
        self.start, self.beams, self.stops = len(prompt), beams, stops
        self.sequences, self.totals = [prompt] * beams, [0.0] * beams
        self.origins = list(range(beams))
        self.finished: list[tuple[float, list]] = []

    def advance(self, values: list, places: list, vocabulary: int):
        sequences, totals, origins = [], [], []
        for value, place in zip(values, places, strict=True):
            beam, token = divmod(place, vocabulary)
            made = [*self.sequences[beam], token]
            if token in self.stops:
                if len(sequences) < self.beams:
                    self.finished.append((value / (len(made) - self.start), made))
            elif len(sequences) < self.beams:
                sequences.append(made)
                totals.append(value)
                origins.append(beam)
        while len(sequences) < self.beams:  # fewer tokens than beams
            sequences.append(sequences[-1] if sequences else self.sequences[0])
            totals.append(-float("inf"))
            origins.append(origins[-1] if origins else 0)
        self.sequences, self.totals, self.origins = sequences, totals, origins

    def done(self, count: int) -> bool:
        """Whether no beam can still become better than what has ended: a sum of logarithms only falls."""
        if len(self.finished) < self.beams:
            return False
        return max(self.totals) / count <= max(mean for mean, _ in self.finished)

    def best(self) -> list[int]:
        running = [(t / (len(s) - self.start), s) for t, s in zip(self.totals, self.sequences, strict=True)]
        return max([*self.finished, *running], key=lambda pair: pair[0])[1]
