"""generate and stream: tokens that go on from prompts."""

from __future__ import annotations

from collections.abc import Iterator

import tandem as td
from tandem.errors import ValueRangeError
from tandem.generation.beam import beam_search
from tandem.generation.cache import window
from tandem.generation.decoder import Decoder, Reading, as_prompts, as_stops, check_count
from tandem.generation.paged import PagedCache
from tandem.generation.sampling import Sampling
from tandem.generation.speculative import speculate


def generate(model, tokens, count: int, *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None,
             beams: int = 1, stop=None, pad: int = 0, draft=None, draft_count: int = 4, cache: str = "static",
             generator=None):  # fmt: skip
    """Prompts with up to `count` more tokens each.

    model: a language model such as td.models.GPT2 or td.models.Llama, in eval mode.
    tokens: (n, t), or a list of prompts of different lengths. The result is like it: (n, t + count), or a list of lists.
    temperature, top_k, top_p: see td.generation.Sampling; temperature=0 takes the likeliest token every time.
    beams: more than 1: the likeliest of so many sequences that are followed at once; nothing is sampled then.
    stop: a token, or several, after which a sequence ends; rows of a tensor go on with `pad`.
    draft: a smaller model with the same tokens, which guesses draft_count tokens at a time. Results are those of `model`, sooner.
    cache: "static" has memory for the whole length from the start, "paged" takes it block by block.

    >>> model = td.models.GPT2(vocabulary=10, context=16, layers=1, heads=1, width=8).eval()
    >>> model.generate(td.tensor([[1, 2, 3]]), 4, temperature=0).shape
    (1, 7)
    """
    check_count(count)
    check_count(beams, "beams", 1)
    prompts, stops = as_prompts(tokens), as_stops(stop)
    sampling = Sampling(temperature, top_k, top_p)
    with td.no_grad():
        if beams > 1:
            made = beam_search(model, prompts, count, beams, stops)
        elif draft is not None:
            made = speculate(model, draft, prompts, count, sampling, stops, draft_count, generator)
        else:
            made = [list(p) for p in prompts]
            ended = [False] * len(made)
            for step in _steps(model, prompts, count, sampling, stops, cache, generator):
                for i, token in enumerate(step):
                    if not ended[i]:
                        made[i].append(token)
                        ended[i] = token in stops
    if not isinstance(tokens, td.Tensor):
        return made
    width = tokens.shape[1] + count
    return td.tensor([row + [pad] * (width - len(row)) for row in made], dtype=tokens.dtype).to(tokens.device)


def stream(model, tokens, count: int, *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None,
           stop=None, cache: str = "static", generator=None) -> Iterator[list[int | None]]:  # fmt: skip
    """The tokens of `generate` as they are made: a list with one of each prompt, None where a sequence has ended."""
    check_count(count)
    prompts, sampling, stops = as_prompts(tokens), Sampling(temperature, top_k, top_p), as_stops(stop)
    ended = [False] * len(prompts)
    for step in _steps(model, prompts, count, sampling, stops, cache, generator):
        yield [None if done else token for token, done in zip(step, ended, strict=True)]
        ended = [done or token in stops for token, done in zip(step, ended, strict=True)]


def _steps(model, prompts: list, count: int, sampling: Sampling, stops, cache: str, generator):
    """Lists of tokens, one for each prompt, until all have ended."""
    history = [list(p) for p in prompts]
    ended = [False] * len(history)
    decoder = chosen = None
    for left in range(count, 0, -1):
        with td.no_grad():
            if chosen is None:  # begins, or goes on from what fits
                decoder, scores = _begin(model, history, count, cache, first=decoder is None)
                chosen = sampling.choose(scores, generator)
            reading = Reading(chosen)
            following, more = None, left > 1 and max(decoder.lengths) < model.context
            if more and decoder.ahead:
                following = decoder.advance(chosen, sampling, generator)
            step = reading.tokens()
        for row, token in zip(history, step, strict=True):
            row.append(token)
        yield step
        ended = [done or token in stops for done, token in zip(ended, step, strict=True)]
        if all(ended):
            return
        if more and following is None:
            with td.no_grad():
                following = decoder.advance(chosen, sampling, generator)
        chosen = following


def _begin(model, history: list, count: int, cache: str, first: bool):
    keep = model.context if first else max(model.context // 2, 1)
    prompts = [row[-keep:] for row in history]
    longest = max(map(len, prompts))
    length = min(longest + count, model.context)
    if cache == "static":
        decoder = Decoder.static(model, len(prompts), length)
    elif cache == "paged":
        decoder = _Paged(model, len(prompts), length)
    else:
        raise ValueRangeError("generate", f"cache is {cache!r}; it may be 'static' or 'paged'")
    return decoder, decoder.prefill(prompts)


class _Paged(Decoder):
    """A decoder whose rows take blocks as they grow."""

    def __init__(self, model, batch: int, length: int, size: int = 16):
        layers, heads, width = model.cache_sizes
        parameter = next(iter(model.parameters()))
        blocks = 1 + batch * -(-length // size)
        super().__init__(model, PagedCache(layers, heads, width, blocks, size, parameter.dtype, parameter.device))
        self.rows = list(range(batch))

    def _grow(self, lengths: list[int], seen: int):
        for row, length in zip(self.rows, lengths, strict=True):
            self.cache.pool.grow(row, length)
        self.cache.select(self.rows, seen)

    def prefill(self, prompts):
        lengths = [len(p) for p in prompts]
        self._grow(lengths, max(lengths))
        return super().prefill(prompts)

    def _take(self, count: int):
        lengths = [n + count for n in self.lengths]
        self._grow(lengths, window(max(lengths)))
        return super()._take(count)
