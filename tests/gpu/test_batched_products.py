"""Products in batches whose axes do not merge, as of heads that are views: Note [Batches of products]."""

import shutil

import numpy as np
import pytest

import tandem as td
from tests.gpu.test_stand_in import run


@pytest.mark.gpu
@pytest.mark.skipif(not td.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("batch, heads", [(64, 3), (3, 64), (2, 2), (1, 5), (300, 2)])
@pytest.mark.parametrize("dtype, tolerance", [(td.float32, 1e-4), (td.bfloat16, 5e-2)])
def test_heads_that_are_views(batch, heads, dtype, tolerance):
    td.manual_seed(0)
    x = td.randn(batch, 16, 3, heads, 8).to(dtype)

    def scores(x):
        q, k, v = x.permute(2, 0, 3, 1, 4).unbind(0)
        shared = q @ k[:, :1].expand(k.shape).transpose(-2, -1)  # keys that all heads share
        return ((q @ k.transpose(-2, -1)).softmax(-1) @ v).transpose(1, 2), shared

    expected = [t.double().numpy() for t in scores(x.double())]
    for found, want in zip(scores(x.cuda()), expected, strict=True):
        np.testing.assert_allclose(found.double().cpu().numpy(), want, rtol=tolerance, atol=tolerance * 10)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_calls_of_the_library_do_not_grow_with_the_batch(tmp_path):
    run(
        """
library = ctypes.CDLL(os.environ["TANDEM_CUDA_PATH"].split(os.pathsep)[0] + "/libcublasLt.so.13")
library.stand_in_products.restype = ctypes.c_longlong
def calls(batch, heads):
    x = td.ones(batch, 128, 3, heads, 64, device="cuda", dtype=td.bfloat16)
    q, k, v = x.permute(2, 0, 3, 1, 4).unbind(0)
    q @ k.transpose(-2, -1)
    before = library.stand_in_products()
    q @ k.transpose(-2, -1)
    td.cuda.synchronize()
    return library.stand_in_products() - before
assert calls(64, 1) == 1, calls(64, 1)
found = [calls(b, 3) for b in (4, 16, 64)]
assert max(found) <= 3, found
assert calls(2, 48) <= 3
""",
        tmp_path,
    )
