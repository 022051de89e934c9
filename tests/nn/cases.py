"""Modules, masks and samplers that several files of tests use."""

import tandem as td
from tandem import nn
from tandem.nn import candidates


def _step(layer, optimizer, x):
    optimizer.zero_grad()
    loss = (layer(x) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss


SAMPLERS = {
    "log_uniform": candidates.LogUniformSampler,
    "uniform": candidates.UniformSampler,
    "learned": candidates.LearnedUnigramSampler,
}


DOCUMENT = td.tensor([0] * 40 + [1] * 60 + [2] * 50)


MASKS = {
    "causal": lambda b, h, i, j: i >= j,
    "window": lambda b, h, i, j: (i >= j) & (i - j < 20),
    "documents": lambda b, h, i, j: DOCUMENT[i] == DOCUMENT[j],
    "some queries see nothing": lambda b, h, i, j: (i > 10) & (j < 5),
}


class Block(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.scale = nn.Parameter(td.ones(width))
        self.register_buffer("count", td.zeros(1))
        self.register_buffer("scratch", td.zeros(2), persistent=False)
        self.note = "plain"

    def forward(self, x):
        return self.linear(x) * self.scale


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.out(x)
