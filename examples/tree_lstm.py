"""A Tree-LSTM learns to evaluate Boolean expressions of any shape: the network is built anew for every tree (Tai et al., 2015).

    python examples/tree_lstm.py

Each tree is a program of its own, `and(or(not(T), F), T)`, run by plain Python recursion. Eager execution needs nothing more:
operators meet new shapes of computation, not new sizes, and the tape follows them.
"""

import random
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
    a, b = (child.label or 0 for child in (children[0], children[-1]))
    value = {"not": 1 - a, "and": a & b, "or": a | b, "xor": a ^ b}[operator]
    return Tree(TOKENS.index(operator), children, value)


def written(tree: Tree) -> str:
    inner = ", ".join(written(child) for child in tree.children)
    return TOKENS[tree.token or 0] + (f"({inner})" if inner else "")


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


def accuracy(model: TreeLSTM, trees) -> float:
    with td.no_grad():
        return sum(model(t).argmax().item() == t.label for t in trees) / len(trees)


def main(epochs: int = EPOCHS, trees: int = TREES, depth: int = 4, width: int = 24, batch: int = BATCH, seed: int = 0,
         show=print):  # fmt: skip
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
    losses = []
    for epoch in range(epochs):
        started, total = time.perf_counter(), 0.0
        rng.shuffle(train)
        for i in range(0, len(train), batch):
            optimizer.zero_grad()
            scores, labels = zip(*[labelled(model, tree) for tree in train[i : i + batch]])
            loss = F.cross_entropy(td.cat(scores), td.cat(labels))
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
    main()
