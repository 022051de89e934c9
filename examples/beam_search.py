"""Beam search with td.while_loop: the best sentences of a small language model, in one compiled program.

The model is a table of transition probabilities, so that the result can be compared with a search of everything.
"""

import itertools

import numpy as np

import tandem as td

WORDS, BEAMS, LONGEST, END = 6, 8, 7, 0
generator = np.random.default_rng(3)
table = generator.standard_normal((WORDS, WORDS)) * 1.5
table[:, END] += np.linspace(-1, 1.5, WORDS)  # some words end a sentence more often than others
LOG_PROBABILITIES = td.log_softmax(td.tensor(table, dtype=td.float32), -1)


@td.compile(whole=True)
def search(start):
    """The best sentences that begin with `start`: their words (BEAMS, LONGEST) and log-probabilities (BEAMS)."""
    place = td.arange(LONGEST)

    def step(t, words, scores, done):
        last = (words * (place == t)).sum(1)
        following = LOG_PROBABILITIES[last]
        ended = td.where(td.arange(WORDS) == END, 0.0, -td.inf)  # after the end nothing costs anything
        total = scores.unsqueeze(1) + td.where(done.unsqueeze(1), ended, following)
        scores, flat = td.topk(total.reshape(-1), BEAMS)
        beam, word = flat // WORDS, flat % WORDS
        words = td.where(place == t + 1, word.unsqueeze(1), words[beam])
        return t + 1, words, scores, done[beam] | (word == END)

    words = td.where(place == 0, start, td.zeros(BEAMS, LONGEST, dtype=td.int64))
    scores = td.where(td.arange(BEAMS) == 0, 0.0, -td.inf)  # all beams start alike: only one may go on
    variables = (td.tensor(0), words, scores, td.zeros(BEAMS, dtype=td.bool))
    _, words, scores, _ = td.while_loop(lambda t, words, scores, done: (t < LONGEST - 1) & ~done.all(), step, variables)
    return words, scores


def search_everything(start: int):
    """The log-probability of the best sentence, by trying all."""
    best, logs = -np.inf, LOG_PROBABILITIES.numpy()
    for length in range(1, LONGEST):
        for middle in itertools.product(range(1, WORDS), repeat=length - 1):
            for last in [END] if length < LONGEST - 1 else range(WORDS):
                sentence = (start, *middle, last)
                best = max(best, sum(logs[a, b] for a, b in itertools.pairwise(sentence)))
    return best


def main():
    for start in range(1, WORDS):
        words, scores = search(td.tensor(start))
        print(start, "->", words[0].tolist(), f"{float(scores[0]):.4f}, best of all {search_everything(start):.4f}")


if __name__ == "__main__":
    main()
