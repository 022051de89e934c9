"""A character language model: an LSTM cell written by hand and carried through the text by td.scan, trained as one program.

Prints its loss and a sample. Settings at the top; runs in well under a minute.
"""

import time

import numpy as np

import tandem as td

TEXT = (
    "one program, two ways to run it, eagerly or as an optimised dataflow graph. python defines and the runtime runs. "
    "everything that runs is a plan, compiled from a graph. an eager operator call is simply the smallest graph. "
)
WIDTH, STEPS, BATCH, LEARNING_RATE, ROUNDS = 64, 24, 16, 1e-2, 150

characters = sorted(set(TEXT))
data = np.array([characters.index(c) for c in TEXT * 8])


class LanguageModel(td.nn.Module):
    def __init__(self, size: int, width: int):
        super().__init__()
        self.embed = td.nn.Embedding(size, width)
        self.gates = td.nn.Linear(2 * width, 4 * width)
        self.head = td.nn.Linear(width, size)

    def cell(self, state, x):
        h, c = state
        i, f, g, o = self.gates(td.concat([x, h], -1)).chunk(4, -1)
        c = td.sigmoid(f + 1) * c + td.sigmoid(i) * td.tanh(g)
        h = td.sigmoid(o) * td.tanh(c)
        return (h, c), h

    def forward(self, index, state):
        """index (steps, batch) -> logits (steps, batch, size), state"""
        state, hidden = td.scan(self.cell, state, self.embed(index))
        return self.head(hidden), state


def start(batch: int):
    return td.zeros(batch, WIDTH), td.zeros(batch, WIDTH)


def main(rounds: int = ROUNDS) -> float:
    td.manual_seed(0)
    generator = np.random.default_rng(0)
    model = LanguageModel(len(characters), WIDTH)
    optimizer = td.optim.Adam(model.parameters(), lr=LEARNING_RATE)

    @td.compile
    def train(x, y):
        logits, _ = model(x, start(BATCH))
        loss = td.nn.functional.cross_entropy(logits.reshape(-1, len(characters)), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    @td.compile
    def sample(first, count):
        """The most probable continuation, one character at a time, in one loop."""

        def step(carry, _):
            state, last = carry
            logits, state = model(last.reshape(1, 1), state)
            following = logits[0, 0].argmax()
            return (state, following), following

        return td.scan(step, (start(1), first), length=count)[1]

    began, loss = time.perf_counter(), td.tensor(0.0)
    for k in range(rounds):
        begin = generator.integers(0, len(data) - STEPS - 1, BATCH)
        windows = np.stack([data[b : b + STEPS + 1] for b in begin], 1)
        loss = train(td.tensor(windows[:-1]), td.tensor(windows[1:]))
        if k % 50 == 0 or k == rounds - 1:
            print(f"round {k}: loss {float(loss):.3f}, {time.perf_counter() - began:.1f} s")
    with td.no_grad():
        text = sample(td.tensor(characters.index("a")), 60).tolist()
    print("a" + "".join(characters[i] for i in text))
    return float(loss)


if __name__ == "__main__":
    main()
