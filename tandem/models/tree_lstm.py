"""Tree-LSTM (Tai et al., 2015): child-sum and binary cells, and a classifier that recurses over trees."""

from __future__ import annotations

from dataclasses import dataclass, field

import tandem as td
from tandem import nn


@dataclass
class Tree:
    """A node with a token (leaves of a sentence), children, and a label."""

    token: int | None = None
    children: list[Tree] = field(default_factory=list)
    label: int | None = None

    def __len__(self) -> int:
        return 1 + sum(len(c) for c in self.children)


class ChildSumTreeLSTMCell(nn.Module):
    """x: (1, a) and the states [(h, c)] of any number of children -> state (h, c), each (1, b)"""

    def __init__(self, channels: int, width: int):
        super().__init__()
        self.width = width
        self.iou_x, self.iou_h = nn.Linear(channels, 3 * width), nn.Linear(width, 3 * width, bias=False)
        self.f_x, self.f_h = nn.Linear(channels, width), nn.Linear(width, width, bias=False)

    def forward(self, x, children):
        gates = self.iou_x(x)
        kept = 0.0
        if children:
            h = td.cat([h for h, _ in children])
            c = td.cat([c for _, c in children])
            gates = gates + self.iou_h(h.sum(0, keepdim=True))
            kept = (td.sigmoid(self.f_x(x) + self.f_h(h)) * c).sum(0, keepdim=True)
        i, o, u = gates.chunk(3, -1)
        c = td.sigmoid(i) * td.tanh(u) + kept
        return td.sigmoid(o) * td.tanh(c), c


class BinaryTreeLSTMCell(nn.Module):
    """The states (h, c) of a left and a right child -> state (h, c); with its own forget gate for either child."""

    def __init__(self, width: int):
        super().__init__()
        self.left, self.right = nn.Linear(width, 5 * width), nn.Linear(width, 5 * width, bias=False)

    def forward(self, left, right):
        i, o, u, fl, fr = (self.left(left[0]) + self.right(right[0])).chunk(5, -1)
        c = td.sigmoid(i) * td.tanh(u) + td.sigmoid(fl) * left[1] + td.sigmoid(fr) * right[1]
        return td.sigmoid(o) * td.tanh(c), c


class TreeLSTM(nn.Module):
    """tree -> scores of its root (1, classes), by plain recursion."""

    def __init__(self, vocabulary: int, embedding: int = 64, width: int = 64, num_classes: int = 5):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.cell = ChildSumTreeLSTMCell(embedding, width)
        self.empty = nn.Parameter(td.zeros(1, embedding))  # the input of nodes without a token
        self.classifier = nn.Linear(width, num_classes)

    def state(self, tree: Tree):
        x = self.empty if tree.token is None else self.embedding(td.tensor([tree.token], device=self.empty.device))
        return self.cell(x, [self.state(child) for child in tree.children])

    def forward(self, tree: Tree):
        return self.classifier(self.state(tree)[0])
