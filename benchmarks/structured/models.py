"""Models whose structure follows the data, written for one example, as they are written for PyTorch: `m` is tandem or torch.

Each has `examples(rng, count)`, plain data, and `loss(example)`, a tensor. None was used to tune td.autobatch.
"""

from __future__ import annotations

import numpy as np


def random_tree(rng, size: int, most: int = 2):
    """(token, children) with `size` leaves, and up to `most` children at each vertex."""
    if size == 1:
        return int(rng.integers(50)), []
    parts = min(size, int(rng.integers(2, most + 1)))
    cuts = np.sort(rng.choice(np.arange(1, size), parts - 1, replace=False)) if parts > 1 else []
    sizes = np.diff([0, *cuts, size])
    return int(rng.integers(50)), [random_tree(rng, int(n), most) for n in sizes]


class TensorTree:
    """A recursive neural tensor network (Socher et al., 2013): a bilinear form of both children, and a label at every vertex."""

    def __init__(self, m, width: int = 32):
        self.m, nn = m, m.nn
        self.embedding, self.linear, self.head = (
            nn.Embedding(50, width),
            nn.Linear(2 * width, width),
            nn.Linear(width, 5),
        )
        self.tensor = nn.Parameter(m.randn(width, 2 * width, 2 * width) * 0.01)
        self.modules = [self.embedding, self.linear, self.head]
        self.parameters = [self.tensor]

    def examples(self, rng, count: int):
        return [random_tree(rng, int(rng.integers(2, 15))) for _ in range(count)]

    def state(self, tree, losses: list):
        m = self.m
        token, children = tree
        if children:
            x = m.cat([self.state(child, losses) for child in children])
            h = m.tanh(self.linear(x) + x @ self.tensor @ x)
        else:
            h = m.tanh(self.embedding(m.tensor(token)))
        losses.append(m.nn.functional.cross_entropy(self.head(h), m.tensor(token % 5)))
        return h

    def loss(self, tree):
        losses: list = []
        self.state(tree, losses)
        return self.m.stack(losses).mean()


class AttentiveTree:
    """A tree GRU that attends to its children, however many there are."""

    def __init__(self, m, width: int = 64):
        self.m, nn = m, m.nn
        self.embedding, self.cell = nn.Embedding(50, width), nn.GRUCell(width, width)
        self.key, self.query = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.head = nn.Linear(width, 2)
        self.modules = [self.embedding, self.cell, self.key, self.query, self.head]
        self.parameters = []

    def examples(self, rng, count: int):
        return [random_tree(rng, int(rng.integers(2, 20)), 5) for _ in range(count)]

    def state(self, tree):
        m = self.m
        token, children = tree
        x = self.embedding(m.tensor([token]))
        if not children:
            return m.tanh(x)
        states = m.cat([self.state(child) for child in children])
        scores = self.key(states) @ self.query(x).squeeze(0)
        pooled = m.softmax(scores, 0) @ states
        return self.cell(x, pooled.unsqueeze(0))

    def loss(self, tree):
        return self.m.nn.functional.cross_entropy(self.head(self.state(tree)), self.m.tensor([tree[0] % 2]))


class ShiftReduce:
    """A transition parser with a stack LSTM (Dyer et al., 2015): states of the stack are a list, which reductions shorten."""

    def __init__(self, m, width: int = 48):
        self.m, nn, self.width = m, m.nn, width
        self.embedding, self.stack = nn.Embedding(50, width), nn.LSTMCell(width, width)
        self.compose, self.scores = nn.Linear(2 * width, width), nn.Linear(2 * width, 3)
        self.modules = [self.embedding, self.stack, self.compose, self.scores]
        self.parameters = []

    def examples(self, rng, count: int):
        made = []
        for _ in range(count):
            tokens = rng.integers(0, 50, int(rng.integers(3, 16))).tolist()
            actions, waiting, depth = [], len(tokens), 0
            while waiting or depth > 1:
                shift = waiting and (depth < 2 or rng.random() < 0.5)
                actions.append(0 if shift else 1 + int(rng.integers(2)))
                waiting, depth = (waiting - 1, depth + 1) if shift else (waiting, depth - 1)
            made.append((tokens, actions))
        return made

    def loss(self, example):
        m, F = self.m, self.m.nn.functional
        tokens, actions = example
        buffer = [self.embedding(m.tensor(t)) for t in reversed(tokens)]
        empty = m.zeros(self.width)
        values, states = [], [(empty, empty)]
        total = 0.0
        for action in actions:
            top = buffer[-1] if buffer else empty
            total = total + F.cross_entropy(self.scores(m.cat([states[-1][0], top])), m.tensor(action))
            if action == 0:
                values.append(buffer.pop())
            else:
                right, left = values.pop(), values.pop()
                del states[-2:]
                values.append(m.tanh(self.compose(m.cat([left, right]))))
            states.append(self.stack(values[-1], states[-1]))
        return total / len(actions)


class Modules:
    """Neural module networks (Andreas et al., 2016): each question is a tree of modules over a map of features."""

    def __init__(self, m, width: int = 16):
        self.m, nn, self.width = m, m.nn, width
        self.find = [nn.Conv2d(width, 1, 1) for _ in range(6)]
        self.relate = [nn.Conv2d(1, 1, 3, padding=1) for _ in range(3)]
        self.describe = nn.Linear(width, 4)
        self.modules = [*self.find, *self.relate, self.describe]
        self.parameters = []

    def examples(self, rng, count: int):
        def question(depth: int):
            kind = int(rng.integers(4)) if depth else 0
            if kind == 0:
                return "find", int(rng.integers(6))
            if kind == 1:
                return "relate", int(rng.integers(3)), question(depth - 1)
            return ("and", "or")[kind - 2], question(depth - 1), question(depth - 1)

        return [
            (question(4), rng.standard_normal((1, self.width, 8, 8)).astype(np.float32), int(rng.integers(4)))
            for _ in range(count)
        ]

    def attend(self, question, image):
        m = self.m
        kind = question[0]
        if kind == "find":
            return m.sigmoid(self.find[question[1]](image))
        if kind == "relate":
            return m.sigmoid(self.relate[question[1]](self.attend(question[2], image)))
        a, b = self.attend(question[1], image), self.attend(question[2], image)
        return m.minimum(a, b) if kind == "and" else m.maximum(a, b)

    def loss(self, example):
        m = self.m
        question, image, answer = example
        image = m.tensor(image)
        pooled = (self.attend(question, image) * image).mean((2, 3))
        return m.nn.functional.cross_entropy(self.describe(pooled), m.tensor([answer]))


class GraphToSequence:
    """A graph encoder, and a decoder that attends to its nodes; graphs and sequences of any size."""

    def __init__(self, m, width: int = 48):
        self.m, nn, self.width = m, m.nn, width
        self.nodes, self.words = nn.Embedding(20, width), nn.Embedding(30, width)
        self.own, self.others = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.cell, self.out = nn.GRUCell(2 * width, width), nn.Linear(width, 30)
        self.modules = [self.nodes, self.words, self.own, self.others, self.cell, self.out]
        self.parameters = []

    def examples(self, rng, count: int):
        made = []
        for _ in range(count):
            n = int(rng.integers(3, 9))
            adjacency = (rng.random((n, n)) < 0.4).astype(np.float32)
            made.append((rng.integers(0, 20, n), adjacency, rng.integers(0, 30, int(rng.integers(3, 12))).tolist()))
        return made

    def loss(self, example):
        m, F = self.m, self.m.nn.functional
        labels, adjacency, words = example
        adjacency, h = m.tensor(adjacency), self.nodes(m.tensor(labels))
        for _ in range(2):
            h = m.relu(self.own(h) + adjacency @ self.others(h))
        state, total, last = h.mean(0), 0.0, 0
        for word in words:
            weights = m.softmax(h @ state, 0)
            state = self.cell(m.cat([self.words(m.tensor(last)), weights @ h]), state)
            total = total + F.cross_entropy(self.out(state), m.tensor(word))
            last = word
        return total / len(words)


class TreeDecoder:
    """From one vector down a tree: at every vertex whether it goes on, and a label."""

    def __init__(self, m, width: int = 64):
        self.m, nn, self.width = m, m.nn, width
        self.left, self.right = nn.GRUCell(width, width), nn.GRUCell(width, width)
        self.goes_on, self.label = nn.Linear(width, 1), nn.Linear(width, 50)
        self.embedding = nn.Embedding(50, width)
        self.modules = [self.left, self.right, self.goes_on, self.label, self.embedding]
        self.parameters = []

    def examples(self, rng, count: int):
        return [
            (random_tree(rng, int(rng.integers(1, 16))), rng.standard_normal(self.width).astype(np.float32))
            for _ in range(count)
        ]

    def loss(self, example):
        tree, code = example
        m, F = self.m, self.m.nn.functional
        total = 0.0
        open_vertices = [(tree, m.tensor(code))]
        while open_vertices:
            (token, children), h = open_vertices.pop()
            more = F.binary_cross_entropy_with_logits(self.goes_on(h), m.tensor([1.0 if children else 0.0]))
            total = total + more + F.cross_entropy(self.label(h), m.tensor(token))
            if children:
                x = self.embedding(m.tensor(token))
                open_vertices += [(children[0], self.left(x, h)), (children[1], self.right(x, h))]
        return total


class GreedyTagger:
    """A tagger that reads its own last decision: one value is needed for each word."""

    def __init__(self, m, width: int = 48):
        self.m, nn, self.width = m, m.nn, width
        self.words, self.tags = nn.Embedding(50, width), nn.Embedding(7, width)
        self.cell, self.scores = nn.GRUCell(2 * width, width), nn.Linear(width, 7)
        self.modules = [self.words, self.tags, self.cell, self.scores]
        self.parameters = []

    def examples(self, rng, count: int):
        return [
            (rng.integers(0, 50, n).tolist(), rng.integers(0, 7, n).tolist())
            for n in rng.integers(3, 15, count).tolist()
        ]

    def loss(self, example):
        m, F = self.m, self.m.nn.functional
        h, last, total = m.zeros(self.width), 0, 0.0
        for word, tag in zip(*example, strict=True):
            h = self.cell(m.cat([self.words(m.tensor(word)), self.tags(m.tensor(last))]), h)
            scores = self.scores(h)
            total = total + F.cross_entropy(scores, m.tensor(tag))
            last = int(scores.argmax())
        return total


class DagRecurrent:
    """A recurrent network over acyclic graphs: a vertex takes the states of all before it that lead to it."""

    def __init__(self, m, width: int = 64):
        self.m, nn, self.width = m, m.nn, width
        self.embedding, self.own = nn.Embedding(20, width), nn.Linear(width, width)
        self.before = nn.Parameter(m.randn(width, width) * 0.1)
        self.head = nn.Linear(width, 3)
        self.modules = [self.embedding, self.own, self.head]
        self.parameters = [self.before]

    def examples(self, rng, count: int):
        made = []
        for _ in range(count):
            n = int(rng.integers(4, 20))
            before = [[j for j in range(max(0, i - 4), i) if rng.random() < 0.5] for i in range(n)]
            made.append((rng.integers(0, 20, n).tolist(), before))
        return made

    def loss(self, example):
        m = self.m
        tokens, before = example
        states: list = []
        for token, parents in zip(tokens, before, strict=True):
            h = self.own(self.embedding(m.tensor(token)))
            for p in parents:
                h = h + states[p] @ self.before.mT
            states.append(m.relu(h))
        return m.nn.functional.cross_entropy(self.head(states[-1]), m.tensor(tokens[0] % 3))


class ConvPrograms:
    """Each example has a small network of its own, put together from shared convolutions."""

    def __init__(self, m, width: int = 8):
        self.m, nn, self.width = m, m.nn, width
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.three, self.one = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 1)
        self.norm, self.head = nn.GroupNorm(2, width), nn.Linear(width, 4)
        self.modules = [self.first, self.three, self.one, self.norm, self.head]
        self.parameters = []

    def examples(self, rng, count: int):
        names = ["three", "one", "norm", "skip", "pool"]
        return [
            ([names[i] for i in rng.choice(5, int(rng.integers(2, 7)), p=[0.3, 0.3, 0.15, 0.15, 0.1])],
             rng.standard_normal((1, 1, 16, 16)).astype(np.float32), int(rng.integers(4)))
            for _ in range(count)
        ]  # fmt: skip

    def loss(self, example):
        m, F = self.m, self.m.nn.functional
        program, image, label = example
        x = m.relu(self.first(m.tensor(image)))
        before = x
        for name in program:
            if name == "pool":
                if x.shape[-1] > 4:
                    x = before = F.max_pool2d(x, 2)
            elif name == "skip":
                x = x + before
            else:
                before, x = x, m.relu(getattr(self, name)(x))
        return F.cross_entropy(self.head(x.mean((2, 3))), m.tensor([label]))


class ByType:
    """Energies of molecules (Behler and Parrinello, 2007): a small network for each kind of atom, with dropout."""

    def __init__(self, m, width: int = 32):
        self.m, nn, self.width = m, m.nn, width
        self.atoms = [
            nn.Sequential(
                nn.Linear(width, width), nn.Tanh(), nn.Dropout(0.1),
                nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1),
            )
            for _ in range(4)
        ]  # fmt: skip
        self.modules = self.atoms
        self.parameters = []

    def examples(self, rng, count: int):
        return [
            ([(int(rng.integers(4)), rng.standard_normal(self.width).astype(np.float32)) for _ in range(int(n))],
             float(rng.standard_normal()))
            for n in rng.integers(2, 14, count)
        ]  # fmt: skip

    def loss(self, example):
        m = self.m
        atoms, energy = example
        total = sum(self.atoms[kind](m.tensor(features)) for kind, features in atoms)
        return ((total - energy) ** 2).squeeze(0)


MODELS = {
    "tensor_tree": TensorTree,
    "attentive_tree": AttentiveTree,
    "shift_reduce": ShiftReduce,
    "modules": Modules,
    "graph_to_sequence": GraphToSequence,
    "tree_decoder": TreeDecoder,
    "greedy_tagger": GreedyTagger,
    "dag_recurrent": DagRecurrent,
    "conv_programs": ConvPrograms,
    "by_type": ByType,
}


def parameters_of(model) -> list:
    return [*model.parameters, *(p for module in model.modules for p in module.parameters())]
