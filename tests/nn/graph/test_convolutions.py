"""Layers over graphs against formulas with dense matrices."""

import numpy as np
import pytest

import tandem as td

N, M = 6, 11
RNG = np.random.default_rng(0)
EDGES = RNG.integers(0, N, (2, M))
EDGES[:, [2, 5, 7]] = [[1, 4, 1], [1, 4, 1]]  # from nodes to themselves, twice to one
OTHERS = EDGES[0] != EDGES[1]
X = RNG.standard_normal((N, 4)).astype(np.float32)


def adjacency(weights=None, loops=False):
    """a[target, source]"""
    a = np.zeros((N, N), np.float32)
    weights = np.ones(M, np.float32) if weights is None else weights
    if not loops:
        np.add.at(a, (EDGES[1], EDGES[0]), weights)
        return a
    np.add.at(a, (EDGES[1][OTHERS], EDGES[0][OTHERS]), weights[OTHERS])
    own = np.ones(N, np.float32)
    own[EDGES[0][~OTHERS]] = weights[~OTHERS]
    return a + np.diag(own)


def check(layer, expected, *more, rtol=1e-4):
    """Eagerly and compiled, and gradients against finite differences."""
    x = td.tensor(X)
    index = td.tensor(EDGES)
    for run in (layer, td.compile(lambda *a: layer(*a))):
        np.testing.assert_allclose(run(x, index, *more).detach().numpy(), expected, rtol=rtol, atol=1e-5)
    layer = layer.to(td.float64)
    wide = [m.to(td.float64) for m in more]
    td.testing.gradcheck(lambda v, *w: layer(v, index, *w), (x.to(td.float64).requires_grad_(), *wide))


@pytest.mark.parametrize("out", [2, 7])
@pytest.mark.parametrize("weighted", [False, True])
def test_gcn(out, weighted):
    td.manual_seed(0)
    layer = td.nn.GCNConv(4, out)
    weights = RNG.uniform(0.5, 2, M).astype(np.float32) if weighted else None
    a = adjacency(weights, loops=True)
    root = 1 / np.sqrt(a.sum(1))
    expected = (root[:, None] * a * root) @ (X @ layer.lin.weight.detach().numpy().T) + layer.bias.detach().numpy()
    check(layer, expected, *([td.tensor(weights)] if weighted else []))


def test_gcn_without_degrees():
    td.manual_seed(0)
    layer = td.nn.GCNConv(4, 3, normalize=False)
    expected = adjacency(loops=True) @ (X @ layer.lin.weight.detach().numpy().T) + layer.bias.detach().numpy()
    check(layer, expected)


@pytest.mark.parametrize("make", [lambda: td.nn.GCNConv(4, 3), lambda: td.nn.GATConv(4, 3, heads=2)])
def test_edges_that_a_graph_computes_have_one_loop_a_node_as_well(make):
    """What is in them cannot be looked at there."""
    layer = make()
    expected = layer(td.tensor(X), td.tensor(EDGES)).detach().numpy()
    made = td.compile(lambda x, e: layer(x, e.flip(0).flip(0)))(td.tensor(X), td.tensor(EDGES))
    np.testing.assert_allclose(made.detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    with td.Graph() as graph:
        x, index = td.placeholder(td.float32, (N, 4)), td.placeholder(td.int64, (2, M))
        y = layer(x, index)
    with td.Session(graph) as session:
        found = session.run(y, feed_dict={x: X, index: EDGES})
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("aggr", ["mean", "sum", "max", "min"])
def test_sage(aggr):
    td.manual_seed(0)
    layer = td.nn.SAGEConv(4, 3, aggr)
    parts = []
    for node in range(N):
        rows = X[EDGES[0][EDGES[1] == node]]
        parts.append(getattr(rows, aggr)(0) if len(rows) else np.zeros(4))
    left, right = layer.lin_l, layer.lin_r
    expected = np.array(parts) @ left.weight.detach().numpy().T + left.bias.detach().numpy()
    check(layer, expected + X @ right.weight.detach().numpy().T)


@pytest.mark.parametrize("heads, concat, edge_dim", [(1, True, None), (3, True, None), (2, False, None), (2, True, 5)])
def test_gat(heads, concat, edge_dim):
    td.manual_seed(0)
    layer = td.nn.GATConv(4, 3, heads, concat, edge_dim=edge_dim)
    p = {k: v.detach().numpy() for k, v in layer.named_parameters()}
    edges = EDGES[:, OTHERS]
    source = np.concatenate([edges[0], np.arange(N)])
    target = np.concatenate([edges[1], np.arange(N)])
    y = (X @ p["lin.weight"].T).reshape(N, heads, 3)
    scores = (y * p["att_src"]).sum(-1)[source] + (y * p["att_dst"]).sum(-1)[target]
    more = []
    if edge_dim:
        features = RNG.standard_normal((M, edge_dim)).astype(np.float32)
        more.append(td.tensor(features))
        features = features[OTHERS]
        arrives = [features[edges[1] == n] for n in range(N)]
        own = np.array([f.mean(0) if len(f) else np.zeros(edge_dim) for f in arrives])
        every = np.concatenate([features, own]).astype(np.float32)
        scores = scores + ((every @ p["lin_edge.weight"].T).reshape(-1, heads, 3) * p["att_edge"]).sum(-1)
    scores = np.where(scores > 0, scores, 0.2 * scores)
    raised = np.exp(scores)
    total = np.zeros((N, heads))
    np.add.at(total, target, raised)
    out = np.zeros((N, heads, 3))
    np.add.at(out, target, (raised / total[target])[:, :, None] * y[source])
    expected = (out.reshape(N, -1) if concat else out.mean(1)) + p["bias"]
    check(layer, expected, *more)


def test_gin():
    td.manual_seed(0)
    layer = td.nn.GINConv(td.nn.Linear(4, 2), eps=0.3, train_eps=True)
    w, b = layer.nn.weight.detach().numpy(), layer.nn.bias.detach().numpy()
    check(layer, (1.3 * X + adjacency() @ X) @ w.T + b)


def test_gin_with_features_of_edges():
    td.manual_seed(0)
    layer, features = td.nn.GINEConv(td.nn.Linear(4, 2), edge_dim=3), RNG.standard_normal((M, 3)).astype(np.float32)
    sent = np.maximum(X[EDGES[0]] + features @ layer.lin.weight.detach().numpy().T + layer.lin.bias.detach().numpy(), 0)
    total = np.zeros((N, 4))
    np.add.at(total, EDGES[1], sent)
    expected = (X + total) @ layer.nn.weight.detach().numpy().T + layer.nn.bias.detach().numpy()
    check(layer, expected, td.tensor(features))


class Difference(td.nn.MessagePassing):
    def forward(self, x, edge_index, weight):
        return self.propagate(edge_index, x=x, weight=weight)

    def message(self, x_i, x_j, weight):
        return (x_i - x_j) * weight[:, None]


@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "prod"])
def test_messages_of_one_s_own(aggr):
    weight = RNG.uniform(1, 2, M).astype(np.float32)
    sent = (X[EDGES[1]] - X[EDGES[0]]) * weight[:, None]
    empty = np.ones(4) if aggr == "prod" else np.zeros(4)
    rows = [sent[EDGES[1] == n] for n in range(N)]
    expected = np.array([getattr(r, aggr)(0) if len(r) else empty for r in rows])
    made = Difference(aggr)(td.tensor(X), td.tensor(EDGES), td.tensor(weight))
    np.testing.assert_allclose(made.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("aggr", ["sum", "max"])
def test_other_arguments_of_messages_are_handed_on_as_they_are(aggr):
    class Mixed(td.nn.MessagePassing):
        def forward(self, x, edge_index, weight):
            return self.propagate(edge_index, x=x, weight=weight)

        def message(self, x_j, weight):
            return x_j @ weight

    weight = RNG.standard_normal((4, 4)).astype(np.float32)
    index = np.array([[0, 1, 2, 3], [5, 2, 5, 1]])  # as many edges as the weight has rows, and not by target
    made = Mixed(aggr)(td.tensor(X), td.tensor(index), td.tensor(weight)).numpy()
    sent = X[index[0]] @ weight
    np.testing.assert_allclose(made[5], getattr(sent[[0, 2]], aggr)(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(made[1], sent[3], rtol=1e-4, atol=1e-5)


def test_edges_are_prepared_once_and_again_after_a_write():
    index, layer = td.tensor(EDGES), td.nn.GINConv(td.nn.Identity())
    before = layer(td.tensor(X), index)
    first = index._edges
    assert layer(td.tensor(X), index).tolist() == before.tolist() and index._edges is first
    index[0] = 0
    after = layer(td.tensor(X), index).numpy()
    np.testing.assert_allclose(after, X + np.bincount(EDGES[1], minlength=N)[:, None] * X[0], rtol=1e-5)


def test_a_compiled_step_is_made_once_for_all_graphs():
    td.manual_seed(0)
    layer = td.nn.GATConv(4, 2)

    @td.compile
    def step(x, index):
        loss = layer(x, index).square().sum()
        loss.backward()
        return loss.detach()

    for n, m in ((5, 9), (8, 20), (11, 3)):
        step(td.randn(n, 4), td.randint(0, n, (2, m)))
    with td.programs() as made:
        for n, m in ((7, 30), (20, 50), (6, 8)):
            step(td.randn(n, 4), td.randint(0, n, (2, m)))
    assert not made


def test_what_does_not_fit_is_refused():
    with pytest.raises(td.ShapeError, match=r"it must be integers \(2, m\)"):
        td.nn.GCNConv(4, 2)(td.tensor(X), td.zeros(3, 2))
    with pytest.raises(td.IndexRangeError, match="index 9 is out of range for axis 0 with size 6"):
        td.nn.GCNConv(4, 2)(td.tensor(X), td.tensor([[0], [9]]))
    for layer in (td.nn.GCNConv(4, 2), td.nn.SAGEConv(4, 2), td.nn.GATConv(4, 2)):  # nodes are not counted from the end
        for index in ([[0], [-1]], [[-1], [0]]):
            with pytest.raises(td.IndexRangeError, match="index -1 is out of range"):
                layer(td.tensor(X), td.tensor(index))
    with pytest.raises(td.ValueRangeError, match="no edge_dim"):
        td.nn.GATConv(4, 2)(td.tensor(X), td.tensor(EDGES), td.ones(M, 3))
