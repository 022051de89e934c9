"""Element types that onnxruntime has no kernels for: operands are cast."""

import pytest

import tandem as td
import tandem.nn.functional as F
from tandem import dtypes
from tandem.onnx.writers.kernels import has_kernel, result_types, wider
from tests.onnx.writers.roundtrip import check_save

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
TYPES = ["bool", "int8", "uint8", "int16", "int32", "int64", "bfloat16", "float16", "float64"]
USES = {
    "arithmetic": lambda x: (x + x, x * x.flip(1), td.maximum(x, x.flip(0)), x == x.flip(1), x < x.flip(0)),
    "reductions": lambda x: (x.sum(1), x.prod(0), x.amax(1), x.argmin(1), x.cumsum(1)),
    "order": lambda x: (td.sort(x, axis=1), td.topk(x, 3, 1)[0]),
    "choice": lambda x: (td.where(x > x.flip(1), x, x.flip(0)), x.tril(), td.diagonal(x), F.pad(x, (1, 2), value=1)),
    "products": lambda x: (x @ x.T, F.linear(x, x)),
}


def as_float(results):
    if isinstance(results, (tuple, list)):
        return tuple(map(as_float, results))
    return results.float() if results.dtype is td.bfloat16 else results


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_runs(dtype, use):
    if dtype == "bool" and use in ("products", "arithmetic"):
        pytest.skip("operators take no booleans here")
    kind = getattr(td, dtype)
    x = td.tensor([[3, 0, 2, -5], [1, 4, -2, 2], [0, 1, 5, -1]])
    x = (x.abs() if dtype == "uint8" else x).to(kind)
    tolerance = {"bfloat16": 2e-2, "float16": 2e-3}.get(dtype, 1e-6)
    check_save(
        lambda x: as_float(USES[use](x.to(kind))), x.float() if dtype == "bfloat16" else x, tolerance=tolerance,
        dynamic=False, whole_batches=False,
    )  # fmt: skip


def test_networks_of_bfloat16():
    layers = td.nn.Linear(8, 16), td.nn.LayerNorm(16), td.nn.GELU(), td.nn.Linear(16, 4)
    model = td.nn.Sequential(*layers).eval().to(td.bfloat16)
    check_save(lambda x: model(x.to(td.bfloat16)).float(), td.randn(3, 8), tolerance=5e-2)


def test_the_table():
    assert wider("Gemm", dtypes.bfloat16) is dtypes.float32 and wider("Gemm", dtypes.float32) is None
    assert wider("Where", dtypes.uint64) is dtypes.int64 and wider("ArgMax", dtypes.uint64) is None, (
        "order would change"
    )
    assert has_kernel("Transpose", dtypes.bfloat16) and not has_kernel("Relu", dtypes.int64)
    assert result_types("TopK", dtypes.int8, 2, None) == [dtypes.int8, dtypes.int64]
    assert result_types("Equal", dtypes.int8, 1, None) == [dtypes.bool_]
