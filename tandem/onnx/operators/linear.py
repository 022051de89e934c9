"""Matrix products."""

from __future__ import annotations

import tandem.ops as ops
from tandem import linalg
from tandem.onnx.registry import onnx_op


@onnx_op("MatMul")
def matmul(node, a, b):
    return ops.matmul(a, b)


@onnx_op("Gemm")
def gemm(node, a, b, c=None):
    a = a.mT if node.get("transA", 0) else a
    b = b.mT if node.get("transB", 0) else b
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    product = a @ b
    if alpha != 1:
        product = (alpha * product).to(product.dtype) if product.dtype.is_inexact else product * int(alpha)
    if c is None or beta == 0:
        return product
    return product + (c if beta == 1 else (c * beta).to(c.dtype))


@onnx_op("Einsum")
def einsum(node, *xs):
    return ops.einsum(node["equation"], *xs)


@onnx_op("Det")
def det(node, x):
    return linalg.det(x)
