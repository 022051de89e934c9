"""A GPT whose training step is a program of thousands of nodes, with names to look for."""

import tandem as td
from tandem import nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, layers: int, width: int = 16):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(20, width), nn.Embedding(8, width)
        self.h = nn.Sequential(*[Block(width, 2) for _ in range(layers)])
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, 20)

    def forward(self, ids):
        return self.head(self.ln_f(self.h(self.wte(ids) + self.wpe(td.arange(8)))))


def training_step(layers: int):
    """A compiled training step that has run once."""
    model = GPT(layers)
    optimizer = td.optim.AdamW(model.parameters(), 1e-3)

    @td.compile
    def step(ids, targets):
        loss = td.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    step(td.zeros(2, 8, dtype=td.int64), td.ones(2, 8, dtype=td.int64))
    return step
