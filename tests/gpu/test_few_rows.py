"""Products of a few rows with matrices whose columns lie in memory: tandem/codegen/cuda/few_rows.py."""

import shutil

import numpy as np
import pytest

import tandem as td
from tests.gpu.test_stand_in import run

CASES = [(1, 64, 100), (1, 37, 11), (2, 4096, 33), (3, 1000, 7), (4, 8, 1), (5, 64, 20), (1, 5, 3)]


@pytest.mark.parametrize("dtype, tolerance", [(td.float32, 1e-5), (td.float16, 2e-3), (td.bfloat16, 1e-2)])
@pytest.mark.parametrize("rows, length, columns", CASES)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.gpu
@pytest.mark.skipif(not td.cuda.is_available(), reason="needs a CUDA device")
def test_products_of_a_few_rows(rows, length, columns, dtype, tolerance, compiled):
    td.manual_seed(0)
    # a view whose rows begin anywhere, and one whose rows lie with gaps
    x = td.randn(rows, length + 3).to(dtype)[:, 3:]
    weight, bias = td.randn(columns, length).to(dtype), td.randn(columns).to(dtype)

    def product(x, weight, bias):
        return td.nn.functional.linear(x, weight, bias)

    expected = product(x.double(), weight.double(), bias.double()).numpy()
    there = [t.to("cuda") for t in (x, weight, bias)]
    there[0] = td.cat([there[0][:, :3], there[0]], 1)[:, 3:]
    found = (td.compile(product) if compiled else product)(*there)
    assert found.dtype == dtype
    np.testing.assert_allclose(found.double().cpu().numpy(), expected, rtol=tolerance, atol=tolerance * length**0.5)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_more_rows_and_rows_in_memory_are_the_librarys(tmp_path):
    run(
        """
sources = set()
nvrtc.compile_source = lambda source, capability, name, *rest: sources.add(name) or b"nothing"
def own(x, w):
    sources.clear()
    with td.profile() as p:
        x @ w
    return any(s.name == "matmul_few_rows" for s in p.steps)
w = td.ones(32, 64, device="cuda")
assert own(td.ones(1, 64, device="cuda"), w.T)
assert own(td.ones(64, device="cuda"), w.T)
assert not own(td.ones(1, 32, device="cuda"), w)
assert not own(td.ones(64, 64, device="cuda"), w.T)
assert not own(td.ones(1, 64, device="cuda", dtype=td.float64), w.double().T)
step = td.compile(lambda x, w: x @ w.T)
def compiled(rows):
    x = td.ones(rows, 64, device="cuda", requires_grad=True)
    with td.profile() as p:
        step(x, w)
    return any(s.name == "matmul_few_rows" for s in p.steps)
assert compiled(3) and not compiled(9)
""",
        tmp_path,
    )
