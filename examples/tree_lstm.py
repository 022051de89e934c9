"""A Tree-LSTM learns to evaluate Boolean expressions of any shape (Tai et al., 2015), written in two ways.

    python examples/tree_lstm.py [autobatch | vertex | plain]

Each tree is a program of its own, `and(or(not(T), F), T)`. `plain` is Python recursion, tree by tree. `autobatch` is the very same
code inside `td.autobatch`: operators of nodes and trees that are alike run as one. `vertex` says what happens at one vertex
and passes trees as data.
"""

import random
import sys
import time

import tandem as td
from tandem.models import Tree, TreeLSTM
from tandem.nn import functional as F

TOKENS = ["F", "T", "not", "and", "or", "xor"]
EPOCHS, TREES, BATCH = 5, 400, 20


def expression(rng: random.Random, depth: int) -> Tree:
    """A random expression no deeper than depth; the label of each node is its value."""
    if depth == 0 or rng.random() < 0.2:
        value = rng.randrange(2)
        return Tree(value, [], value)
    operator = rng.choice(TOKENS[2:])
    children = [expression(rng, depth - 1) for _ in range(1 if operator == "not" else 2)]
    a, b = (int(child.label or 0) for child in (children[0], children[-1]))
    value = {"not": 1 - a, "and": a & b, "or": a | b, "xor": a ^ b}[operator]
    return Tree(TOKENS.index(operator), children, value)


def written(tree: Tree) -> str:
    inner = ", ".join(written(child) for child in tree.children)
    return TOKENS[tree.token or 0] + (f"({inner})" if inner else "")


# -- by recursion


def labelled(model: TreeLSTM, tree: Tree):
    """The scores and labels of all nodes of a tree, from the leaves up."""
    scores, labels = [], []

    def visit(node):
        state = model.cell(model.embedding(td.tensor([node.token])), [visit(child) for child in node.children])
        scores.append(model.classifier(state[0]))
        labels.append(node.label)
        return state

    visit(tree)
    return td.cat(scores), td.tensor(labels)


def recursive_loss(model: TreeLSTM, trees):
    """The mean loss of all nodes, tree by tree and node by node."""
    scores, labels = zip(*[labelled(model, tree) for tree in trees])
    return F.cross_entropy(td.cat(scores), td.cat(labels))


# -- by vertices


def numbered(trees):
    """The structure of the trees, with tokens and labels of its vertices."""
    tokens, labels, parents = [], [], []

    def visit(node):
        children = [visit(child) for child in node.children]
        tokens.append(node.token)
        labels.append(node.label)
        parents.append(-1)
        for child in children:
            parents[child] = len(parents) - 1
        return len(parents) - 1

    for tree in trees:
        visit(tree)
    return td.Structure.from_parents(parents), td.tensor(tokens), td.tensor(labels)


def vertex_loss(model: TreeLSTM, trees):
    """The same loss: the cell at one vertex, over all vertices of all trees."""
    cell = model.cell

    @td.vertex
    def state(children, gates, forget):
        h, c = children
        i, o, u = (gates + cell.iou_h(h.sum(0))).chunk(3, -1)
        kept = (td.sigmoid(forget + cell.f_h(h)) * c).sum(0)
        c = td.sigmoid(i) * td.tanh(u) + kept
        return td.sigmoid(o) * td.tanh(c), c

    structure, tokens, labels = numbered(trees)
    x = model.embedding(tokens)
    zero = td.zeros(cell.width)
    h, _ = state(structure, cell.iou_x(x), cell.f_x(x), state=(zero, zero))
    return F.cross_entropy(model.classifier(h), labels)


WAYS = {"autobatch": td.autobatch(recursive_loss), "vertex": vertex_loss, "plain": recursive_loss}


def accuracy(model: TreeLSTM, trees) -> float:
    with td.no_grad():
        with td.autobatch():
            scores = [model(tree) for tree in trees]
        return sum(s.argmax().item() == t.label for s, t in zip(scores, trees, strict=True)) / len(trees)


def main(epochs: int = EPOCHS, trees: int = TREES, depth: int = 4, width: int = 24, batch: int = BATCH, seed: int = 0,
         way: str = "autobatch", show=print):  # fmt: skip
    """Trains; gives the mean loss of each epoch and the accuracy on new trees, one level deeper too."""
    td.manual_seed(seed)
    rng = random.Random(seed)
    train = [expression(rng, depth) for _ in range(trees)]
    test = [expression(rng, depth) for _ in range(max(50, trees // 4))]
    deeper = [expression(rng, depth + 1) for _ in range(max(50, trees // 4))]
    show(
        f"{trees} trees with {sum(map(len, train))} nodes, such as {written(min(train, key=lambda t: abs(len(t) - 8)))}"
    )

    model = TreeLSTM(len(TOKENS), embedding=width, width=width, num_classes=2)
    optimizer = td.optim.Adam(model.parameters(), lr=1e-2)
    losses, right = [], 0.0
    for epoch in range(epochs):
        started, total = time.perf_counter(), 0.0
        rng.shuffle(train)
        for i in range(0, len(train), batch):
            optimizer.zero_grad()
            loss = WAYS[way](model, train[i : i + batch])
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / -(-len(train) // batch))
        right = accuracy(model, test)
        seconds = time.perf_counter() - started
        show(f"epoch {epoch + 1:2d}  loss {losses[-1]:.4f}  test accuracy {right:.1%}  {seconds:.1f} s")
    far = accuracy(model, deeper)
    show(f"trees one level deeper than any it has seen: {far:.1%}")
    return losses, right, far


if __name__ == "__main__":
    main(way=sys.argv[1] if len(sys.argv) > 1 else "autobatch")
