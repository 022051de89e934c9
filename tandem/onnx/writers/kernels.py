"""The types of elements that onnxruntime's CPU kernels take, for operators that do not take all that the standard allows.

`Writer.emit` casts operands of other types to a wider one that a kernel takes, and results back: sums and products of wider
integers have the same low bits, order stays, and every number of 16 bits is one of 32.
"""

from __future__ import annotations

from tandem import dtypes


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FLOATS = "float16 float32 float64"
_NUMBERS = f"int8 uint8 int16 uint16 int32 uint32 int64 uint64 {_FLOATS}"
_COMMON = f"int8 uint8 int32 uint32 int64 uint64 {_FLOATS}"
_SUMS = f"int32 int64 {_FLOATS}"
_TABLE = {
    "Exp Log Sqrt Sin Cos Tanh Sigmoid Floor Ceil Round Reciprocal Softmax LogSoftmax Gemm DFT": _FLOATS,
    "Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Erf Softplus Gelu Elu Det Conv ConvTranspose AveragePool GlobalAveragePool":
        "float16 float32",
    "Sign": f"bfloat16 {_NUMBERS}",
    "IsNaN IsInf": f"bfloat16 {_FLOATS}",
    "Abs Add Sub Mul Div Mod Less LessOrEqual": _NUMBERS,
    "Neg": f"int8 int16 int32 int64 {_FLOATS}",
    "Equal Expand": f"bool {_NUMBERS}",
    "Pow ReduceSum ReduceProd ReduceLogSumExp CumSum": _SUMS,
    "MatMul": f"int32 uint32 int64 uint64 {_FLOATS}",
    "Max Min Clip": _COMMON,
    "Pad": f"bool {_COMMON}",
    "Where": f"int8 uint8 int32 uint32 int64 {_FLOATS}",
    "ReduceMax ReduceMin": f"bool int8 uint8 {_SUMS}",
    "ArgMax ArgMin": f"int8 uint8 {_SUMS}",
    "TopK": f"int8 uint8 int16 {_SUMS}",
    "NonZero": "bool uint8 int32 int64 float16 float32",
    "Einsum": "int32 int64 float32 float64",
    "MaxPool GlobalMaxPool": f"int8 uint8 {_FLOATS}",
    "Relu": f"int8 int32 {_FLOATS}",
}  # fmt: skip
_KERNELS = {op: _names(types) for ops, types in _TABLE.items() for op in ops.split()}
_WIDER = {
    "bool": ("uint8", "int32", "float32"), "int8": ("int32", "float32"), "uint8": ("int32", "float32"),
    "int16": ("int32", "float32"), "uint16": ("int32", "float32"), "int32": ("int64", "float64"), "uint32": ("int64", "float64"),
    "bfloat16": ("float32",), "float16": ("float32",),
}  # fmt: skip
_BITS = _names("Where ReduceSum ReduceProd CumSum Einsum")  # of uint64 as of int64

_TRUTHS = _names("Equal Less LessOrEqual Greater IsNaN IsInf Not And Or Xor")
_POSITIONS = _names("Shape Size ArgMax ArgMin NonZero")
_WHICH = {"Where": (1, 2), "Pad": (0, 2)}  # operands of the operator's type; of these, the first alone:
_FIRST = _names(
    "Expand ReduceSum ReduceProd ReduceLogSumExp ReduceMax ReduceMin ArgMax ArgMin TopK CumSum Gather GatherND GatherElements "
    "Reshape Slice Unsqueeze Squeeze Split MaxPool DFT"
)


def has_kernel(op: str, dtype: dtypes.DType) -> bool:
    return op not in _KERNELS or dtype.name in _KERNELS[op]


def typed_operands(op: str, count: int) -> tuple[int, ...]:
    """The operands whose type is that of the operator."""
    return (0,) if op in _FIRST else _WHICH.get(op, tuple(range(count)))


def wider(op: str, dtype: dtypes.DType) -> dtypes.DType | None:
    """What operands of this type are cast to, so that a kernel takes them; None: they stay."""
    if has_kernel(op, dtype):
        return None
    choices = ("int64",) if dtype is dtypes.uint64 and op in _BITS else _WIDER.get(dtype.name, ())
    return next((dtypes.by_name(name) for name in choices if name in _KERNELS[op]), None)


def result_types(op: str, dtype: dtypes.DType, count: int, to: dtypes.DType | None) -> list[dtypes.DType]:
    """Types of the results of an operator on operands of this type; to: of a Cast."""
    if op == "Cast":
        return [to]
    if op in _TRUTHS:
        return [dtypes.bool_]
    if op in _POSITIONS:
        return [dtypes.int64]
    return [dtype, dtypes.int64] if op in ("TopK", "MaxPool") else [dtype] * count
