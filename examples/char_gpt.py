"""A small GPT that writes text letter by letter, trained by one compiled program, and sampled from.

    python examples/char_gpt.py

It reads Python's own language reference, which every Python carries (PSF licence); with Debian's package bible-kjv-text and
`--text king_james`, the King James Bible. A minute on two cores gives words and the look of sentences, not sense.
"""

import argparse
import collections
import math
import time

import tandem as td
from tandem.nn import functional as F

STEPS = 400
BATCH, CONTEXT = 16, 64
LAYERS, HEADS, WIDTH = 4, 4, 128


class Letters:
    """Text as numbers: rare characters are one number, so that the vocabulary stays small."""

    def __init__(self, text: str, size: int = 96):
        common = collections.Counter(text).most_common(size - 1)
        self.known = sorted(c for c, _ in common)
        self.number = {c: i + 1 for i, c in enumerate(self.known)}  # 0 is everything else

    def __len__(self) -> int:
        return len(self.known) + 1

    def encode(self, text: str):
        return td.tensor([self.number.get(c, 0) for c in text])

    def decode(self, tokens) -> str:
        return "".join("?" if t == 0 else self.known[t - 1] for t in tokens.tolist())


def batches(tokens, count: int, length: int):
    """Endlessly: (count, length) pieces from random places, and the same moved on by one letter."""
    offsets = td.arange(length + 1)
    while True:
        piece = tokens[td.randint(0, len(tokens) - length - 1, (count, 1)) + offsets]
        yield piece[:, :-1], piece[:, 1:]


def main(steps: int = STEPS, batch: int = BATCH, context: int = CONTEXT, layers: int = LAYERS, heads: int = HEADS,
         width: int = WIDTH, text: str = "python_docs", prompt: str = "The ", sample: int = 300, seed: int = 0,
         show=print):  # fmt: skip
    """Trains and samples; gives the losses in bits a letter, and the text."""
    td.manual_seed(seed)
    corpus = getattr(td.data.sets, text)()
    letters = Letters(corpus)
    tokens = letters.encode(corpus)
    held_out = len(tokens) // 10  # the last tenth is never trained on

    model = td.models.GPT2(len(letters), context, layers, heads, width, dropout=0.0)
    optimizer = td.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = td.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.1)
    parameters = sum(p.numel() for p in model.parameters())
    show(f"{len(tokens):,} letters, {len(letters)} different ones; {parameters:,} parameters")

    def loss_of(x, y):
        return F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / math.log(2)

    @td.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        td.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    losses, source = [], batches(tokens[:-held_out], batch, context)
    started = time.perf_counter()
    for i in range(steps):
        losses.append(step(*next(source)).item())
        schedule.step()
        if (i + 1) % max(1, steps // 10) == 0:
            speed = (i + 1) * batch * context / (time.perf_counter() - started)
            show(f"step {i + 1:4d}  {losses[-1]:.3f} bits a letter  {speed:,.0f} letters a second")

    model.eval()
    with td.no_grad():
        unseen = batches(tokens[-held_out:], batch, context)
        test = sum(loss_of(*next(unseen)).item() for _ in range(8)) / 8
    show(f"on text it has not seen: {test:.3f} bits a letter")

    written = letters.decode(model.generate(letters.encode(prompt)[None], sample, temperature=0.8, top_k=20)[0])
    show("-" * 60 + "\n" + written)
    return losses, written


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--text", default="python_docs", choices=["python_docs", "king_james"])
    options.add_argument("--steps", type=int, default=STEPS)
    options.add_argument("--prompt", default="The ")
    given = options.parse_args()
    main(steps=given.steps, text=given.text, prompt=given.prompt)
