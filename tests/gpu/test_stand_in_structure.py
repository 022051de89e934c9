"""How many kernels models whose structure follows the data launch on a CUDA device: on a stand-in that computes nothing."""

import shutil

import pytest

from tests.gpu.test_stand_in import run

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

VERTEX = """
first, second = td.nn.Linear(4, 6, device="cuda"), td.nn.Linear(6, 6, bias=False, device="cuda")

@td.vertex
def cell(children, x):
    return td.tanh(first(x) + second(children.sum(0)))

def launches(structure):
    x = td.zeros(len(structure), 4, device="cuda", requires_grad=True)
    for _ in range(2):  # the first call copies constants
        before = counts()["launches"]
        h = cell(structure, x, state=td.zeros(6, device="cuda"))
        assert h.device == "cuda:0" and h.shape == (len(structure), 6)
        forward = counts()["launches"] - before
        h.sum().backward()
        made = forward, counts()["launches"] - before - forward
    assert x.grad.shape == x.shape
    return made

chains = td.Structure.chains
"""


def test_a_vertex_program_launches_by_frontier_and_not_by_vertex(tmp_path):
    run(
        VERTEX
        + """
few, many, long = launches(chains([20] * 2)), launches(chains([20] * 200)), launches(chains([40] * 200))
assert many[0] <= few[0] and many[1] <= few[1], (few, many)
assert long[0] <= 2 * many[0] and long[1] <= 2 * many[1], (many, long)
assert few[0] <= 5 * 20 and few[1] <= 15 * 20, few
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
