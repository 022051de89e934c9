"""How many kernels models whose structure follows the data launch on a CUDA device: on a stand-in that computes nothing."""

import shutil

import pytest

from tests.gpu.test_stand_in import run

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

MOVES = """
def asked():  # of the driver
    moved = (ctypes.c_longlong * 3)()  # to the device, on it, zeros
    library.stand_in_moves(moved)
    return counts()["launches"] + counts()["graphs"] + sum(moved)
"""

VERTEX = (
    MOVES
    + """
first, second = td.nn.Linear(4, 6, device="cuda"), td.nn.Linear(6, 6, bias=False, device="cuda")

@td.vertex
def cell(children, x):
    return td.tanh(first(x) + second(children.sum(0)))

def launches(structure):
    x = td.zeros(len(structure), 4, device="cuda", requires_grad=True)
    for _ in range(2):  # the first call copies constants
        before = asked()
        h = cell(structure, x, state=td.zeros(6, device="cuda"))
        assert h.device == "cuda:0" and h.shape == (len(structure), 6)
        forward = asked() - before
        h.sum().backward()
        made = forward, asked() - before - forward
    assert x.grad.shape == x.shape
    return made

chains = td.Structure.chains
"""
)


def test_a_vertex_program_launches_by_frontier_and_not_by_vertex(tmp_path):
    run(
        VERTEX
        + """
few, many, long = launches(chains([20] * 2)), launches(chains([20] * 200)), launches(chains([40] * 200))
assert many[0] <= few[0] and many[1] <= few[1], (few, many)
assert long[0] <= 2 * many[0] and long[1] <= 2 * many[1], (many, long)
assert few[0] <= 5 * 20 and few[1] <= 8 * 20, (few, many, long)
ended = launches(chains([20, 20, 2]))  # rows of the last frontier that have gone on lie apart
assert ended[0] <= few[0] + 5 and ended[1] <= few[1] + 15, (few, ended)
""",
        tmp_path,
    )


def test_autobatch_launches_by_group_and_not_by_example(tmp_path):
    run(
        """
cell = td.nn.GRUCell(4, 6, device="cuda")
words = td.zeros(8, 4, device="cuda")

def launches(examples):
    for _ in range(4):  # until calls are known
        before = counts()["launches"]
        with td.autobatch() as batch:
            total = 0.0
            for _ in range(examples):
                h = None
                for word in words:
                    h = cell(word, h)
                total = total + (h * h).sum()
            total.backward()
        made = counts()["launches"] - before
    assert cell.weight_hh.grad.shape == (18, 6)
    return made, batch.groups

few, many = launches(20), launches(60)
print(few, many)
assert many[1] <= few[1] + 60 and many[0] <= few[0] + 3 * 60, (few, many)  # the sum of the losses is a chain
""",
        tmp_path,
    )


TREES = (
    MOVES
    + """
from tandem.models import Tree, TreeLSTM
from tandem.nn import functional as F

def tree(depth):
    return Tree(depth, [tree(depth - 1), tree(depth - 1)] if depth else [], 1)

model = TreeLSTM(20, 6, 6, 3).to("cuda")

def step(trees):
    model.zero_grad()
    with td.autobatch() as batch:
        scores = td.cat([model(tree) for tree in trees])
        F.cross_entropy(scores, td.tensor([tree.label for tree in trees], device="cuda")).backward()
    return batch.groups

def settled(trees):  # once sizes and calls are known: (groups, what they ask)
    for _ in range(8):
        step(trees)
    before = asked()
    return step(trees), asked() - before
"""
)


def test_recursion_under_autobatch_asks_the_driver_by_group_and_not_by_vertex(tmp_path):
    """Nor to bring each token of a vertex to the device."""
    run(
        TREES
        + """
few, many, deep = settled([tree(4)] * 4), settled([tree(4)] * 40), settled([tree(6)] * 4)
assert few[0] == many[0] and many[1] <= few[1] + 5, (few, many)
assert few[1] <= 16 * few[0] and deep[1] <= few[1] + 16 * (deep[0] - few[0]), (few, deep)
""",
        tmp_path,
    )


def test_programs_that_mostly_move_what_they_are_given_run_plainly(tmp_path):
    run(
        """
def graphs(f):
    f = td.compile(f)
    before = counts()["graphs"]
    given = [td.zeros(4, device="cuda") for _ in range(8)]  # each somewhere else
    for x in given:
        f(x)
    return counts()["graphs"] - before

assert graphs(lambda x: x * 2 + 1) == 0  # one launch, or two copies and a graph
assert graphs(lambda x: td.cumsum(td.cumsum(td.cumsum(x, 0) * 2, 0), 0)) >= 4
""",
        tmp_path,
    )
