"""A small GPT on a mesh of ranks: batches divided along "data", layers along "model".

    tandem run -n 4 examples/gpt_sharded.py          2 x 2 ranks
    python examples/gpt_sharded.py                   the same numbers in one process

The model is written for one process. What makes it parallel is in `place`: which axis of which parameter is divided. The losses are
the same on every mesh, dropout included.
"""

import argparse

import numpy as np

import tandem as td
from tandem import distributed as dist
from tandem import nn

TEXT = "the quick brown fox jumps over the lazy dog; " * 40
VOCABULARY = sorted(set(TEXT))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            f(x).reshape(b, t, self.heads, d // self.heads).permute(0, 2, 1, 3) for f in (self.q, self.k, self.v)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.permute(0, 2, 1, 3).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.ln2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.dropout(self.down(nn.functional.gelu(self.up(self.ln2(x)))))


class GPT(nn.Module):
    def __init__(self, vocabulary, context, width=32, heads=4, layers=2):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Parameter(td.randn(context, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.ln(self.blocks(self.tokens(tokens) + self.positions)))


def place(model, mesh):
    """Columns of what goes into heads and hidden units, rows of what comes out of them; all else is on every rank."""
    column, row = dist.ColwiseParallel(), dist.RowwiseParallel()
    plan = {f"blocks.*.attention.{name}": column for name in "qkv"}
    plan |= {"blocks.*.attention.out": row, "blocks.*.up": column, "blocks.*.down": row}
    return dist.parallelize_module(model, mesh, plan, axis="model")


def batches(steps, batch, context):
    numbers = np.array([VOCABULARY.index(c) for c in TEXT])
    rng = np.random.default_rng(0)
    for _ in range(steps):
        starts = rng.integers(0, len(numbers) - context - 1, batch)
        rows = np.stack([numbers[s : s + context + 1] for s in starts])
        yield td.tensor(rows[:, :-1]), td.tensor(rows[:, 1:])


def train(mesh=None, steps=20, batch=8, context=16, layers=2, compiled=True):
    """The losses. mesh: with axes "data" and "model"; None: one process."""
    td.manual_seed(0)
    model = GPT(len(VOCABULARY), context, layers=layers)
    if mesh is not None:
        place(model, mesh)
    optimizer = td.optim.AdamW(model.parameters(), lr=3e-3)

    def step(x, y):
        scores = model(x)
        loss = nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    run = td.compile(step) if compiled else step
    losses = []
    for x, y in batches(steps, batch, context):
        if mesh is not None:
            x, y = (dist.distribute_tensor(t, mesh, dist.PartitionSpec("data"), src_data_rank=None) for t in (x, y))
        losses.append(run(x, y).item())
    return losses


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    dist.init_process_group()
    n = dist.get_world_size()
    model = 2 if n % 2 == 0 else 1
    mesh = dist.Mesh((n // model, model), ("data", "model")) if n > 1 else None
    losses = train(mesh, options.steps)
    if dist.get_rank() == 0:
        print(f"{mesh}: loss {losses[0]:.4f} -> {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
