"""Models whose structure follows the data, on a device: td.autobatch, vertex programs, packed sequences, graphs, as on the CPU."""

import numpy as np
import pytest

import tandem as td
from tandem.models import GAT, GCN, Tree, TreeLSTM
from tandem.nn import functional as F

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not td.cuda.is_available(), reason="needs a CUDA device")]


def random_tree(rng, depth: int) -> Tree:
    count = int(rng.integers(0, 4)) if depth else 0
    return Tree(int(rng.integers(20)), [random_tree(rng, depth - 1) for _ in range(count)], int(rng.integers(3)))


def flat(trees: list[Tree]):
    """(structure, tokens)."""
    rows, tokens = [], []

    def visit(tree: Tree) -> int:
        children = [visit(child) for child in tree.children]
        tokens.append(tree.token)
        rows.append(children)
        return len(rows) - 1

    for tree in trees:
        visit(tree)
    offsets = np.cumsum([0, *map(len, rows)])
    return td.Structure(offsets, np.asarray([c for row in rows for c in row], np.int64)), td.tensor(tokens)


def compare(make, run, tolerance: float = 2e-4):
    """run(model, device) of one model on the CPU and on the device: a loss; gradients as well."""
    found = []
    for device in ("cpu", "cuda"):
        td.manual_seed(0)
        model = make().to(device)
        losses = []
        for _ in range(3):
            model.zero_grad()
            loss = run(model, device)
            loss.backward()
            losses.append(float(loss))
        found.append([np.asarray(losses), *(p.grad.cpu().numpy() for p in model.parameters() if p.grad is not None)])
    for have, want in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(have, want, rtol=tolerance, atol=tolerance * max(1.0, np.abs(want).max()))


def test_recursion_under_autobatch():
    trees = [random_tree(np.random.default_rng(i), 4) for i in range(12)]

    @td.autobatch
    def run(model, device):
        return sum(F.cross_entropy(model(tree), td.tensor([tree.label], device=device)) for tree in trees)

    compare(lambda: TreeLSTM(20, 12, 16, 3), run)


@pytest.mark.parametrize("width", [1, 7, 150])
@pytest.mark.parametrize("many", [3, 400])  # rows that travel with launches, and tables on the device
def test_a_vertex_program_over_trees(width, many):
    structure, tokens = flat([random_tree(np.random.default_rng(i), 4) for i in range(many)])

    def run(model, device):
        cell = model.cell

        @td.vertex
        def program(children, gates_x, forget_x):
            h, c = children
            i, o, u = (gates_x + cell.iou_h(h.sum(0))).chunk(3, -1)
            c = td.sigmoid(i) * td.tanh(u) + (td.sigmoid(forget_x + cell.f_h(h)) * c).sum(0)
            return td.sigmoid(o) * td.tanh(c), c

        x = model.embedding(tokens.to(device))
        zero = td.zeros(width, device=device)
        h, c = program(structure, cell.iou_x(x), cell.f_x(x), state=(zero, zero))
        return (h * c).mean()

    compare(lambda: TreeLSTM(20, 12, width, 3), run)


@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("dtype", [td.float32, td.float64, td.bfloat16])
def test_vertices_that_share_children(direction, dtype):
    rng = np.random.default_rng(0)
    n = 60
    rows = [sorted(set(rng.integers(0, v, int(rng.integers(0, 5))).tolist())) if v else [] for v in range(n)]
    structure = td.Structure(np.cumsum([0, *map(len, rows)]), np.asarray([c for row in rows for c in row], np.int64))

    @td.vertex
    def program(children, x):
        return td.tanh(x + 0.3 * children.sum(0))

    found = []
    for device in ("cpu", "cuda"):
        x = td.tensor(rng.standard_normal((n, 5)) if not found else found[0][2]).to(dtype).to(device).requires_grad_()
        h = program(structure, x, state=td.zeros(5, dtype=dtype, device=device), direction=direction)
        (h * h).sum().backward()
        found.append(
            (h.detach().double().cpu().numpy(), x.grad.double().cpu().numpy(), x.detach().double().cpu().numpy())
        )
    tolerance = {td.float32: 1e-5, td.float64: 1e-12, td.bfloat16: 5e-2}[dtype]
    for have, want in zip(found[1][:2], found[0][:2], strict=True):
        np.testing.assert_allclose(have, want, rtol=tolerance, atol=tolerance)


def test_long_chains():
    structure = td.Structure.chains([2000, 3, 1500])
    w = td.randn(8, 8) * 0.3
    x = td.randn(len(structure), 8)

    @td.vertex
    def program(children, x, w=None):
        return td.tanh(x + children.sum(0) @ weight)

    found = []
    for device in ("cpu", "cuda"):
        weight = w.clone().to(device).requires_grad_()
        own = x.clone().to(device).requires_grad_()
        h = program(structure, own, state=td.zeros(8, device=device))
        h.sum().backward()
        found.append([t.detach().cpu().numpy() for t in (h, weight.grad, own.grad)])
    for have, want in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-3, atol=1e-3)


def test_words_joined_under_autobatch():
    """A cell for each word, states stacked, an attention over as many as there are."""
    td.manual_seed(0)
    sentences = [td.randn(n, 6) for n in (3, 9, 1, 5, 9)]

    class Model(td.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.query = td.nn.GRUCell(6, 10), td.nn.Linear(10, 1)

        def forward(self, words):
            h, states = None, []
            for word in words:
                h = self.cell(word, h)
                states.append(h)
            all_states = td.stack(states)
            return (td.softmax(self.query(all_states), 0) * all_states).sum(0)

    @td.autobatch
    def run(model, device):
        return sum((model(words.to(device)) ** 2).sum() for words in sentences)

    compare(Model, run)


def test_packed_sequences():
    lengths = [5, 40, 17, 40, 1]
    words = [td.randn(n, 6) for n in lengths]

    class Model(td.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = td.nn.LSTM(6, 16), td.nn.Linear(16, 3)

        def forward(self, words):
            packed = td.nn.utils.rnn.pack_sequence(words, enforce_sorted=False)
            return self.head(self.lstm(packed)[0].data)

    compare(Model, lambda model, device: (model([w.to(device) for w in words]) ** 2).mean())


@pytest.mark.parametrize("make", [lambda: GCN(8, 16, 4, dropout=0.0), lambda: GAT(8, 4, 4, heads=2, dropout=0.0)])
@pytest.mark.parametrize("compiled", [False, True])
def test_graph_layers(make, compiled):
    rng = np.random.default_rng(0)
    x = td.tensor(rng.standard_normal((300, 8)).astype(np.float32))
    edges, labels = td.tensor(rng.integers(0, 300, (2, 2000))), td.tensor(rng.integers(0, 4, 300))

    def loss(model, x, edges, labels):
        return F.cross_entropy(model(x, edges), labels)

    fn = td.compile(loss) if compiled else loss
    compare(make, lambda model, device: fn(model, x.to(device), edges.to(device), labels.to(device)))
