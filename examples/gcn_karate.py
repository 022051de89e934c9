"""A graph network tells the two groups of a karate club apart from the label of one member each (Kipf and Welling, 2017).

    python examples/gcn_karate.py

Zachary's karate club (1977): 34 members, 78 friendships, and a quarrel after which half went with the instructor, half with the
president. The network knows the friendships and two labels; the graph does the rest. Needs `pip install networkx`.
"""

import tandem as td
from tandem.nn import functional as F

STEPS = 120


def main(steps: int = STEPS, hidden: int = 16, seed: int = 0, show=print):
    """Trains; gives the losses, the accuracy on the members without a label, and the groups."""
    td.manual_seed(seed)
    edges, labels = td.data.sets.karate_club()
    nodes = len(labels)
    features = td.eye(nodes)  # nothing is known of a member but who he is
    known = td.tensor([0, nodes - 1])  # the instructor and the president

    model = td.models.GCN(nodes, hidden, 2, layers=2, dropout=0.2)
    optimizer = td.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)

    @td.compile
    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(features, edges)[known], labels[known])
        loss.backward()
        optimizer.step()
        return loss.detach()

    unknown = td.ones(nodes, dtype=td.bool)
    unknown[known] = False
    losses, right, groups = [], 0.0, labels
    for i in range(steps):
        model.train()
        losses.append(step().item())
        if (i + 1) % max(1, steps // 6) == 0:
            model.eval()
            with td.no_grad():
                groups = model(features, edges).argmax(1)
            right = (groups == labels)[unknown].float().mean().item()
            show(
                f"step {i + 1:4d}  loss {losses[-1]:.4f}  right for {right:.1%} of {nodes - len(known)} members without a label"
            )

    for group, leader in enumerate(("instructor", "president")):
        members = [i for i, g in enumerate(groups.tolist()) if g == group]
        strangers = {i for i in members if labels[i].item() != group}
        show(f"with the {leader}: " + " ".join(f"({i})" if i in strangers else str(i) for i in members))
    show("in brackets: who really went with the other")
    return losses, right, groups


if __name__ == "__main__":
    main()
