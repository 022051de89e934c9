"""Random numbers: a node with a seed gives the same ones every time."""

from __future__ import annotations

import tandem.ops as ops
from tandem import dtypes
from tandem.onnx.registry import onnx_op
from tandem.onnx.types import dtype_of
from tandem.random import Generator


def _generator(node):
    seed = node.get("seed")
    if seed is None:
        return None
    generator = Generator()
    generator.manual_seed(int(seed))
    return generator


def _dtype(node, x=None):
    if "dtype" in node.attributes:
        return dtype_of(node["dtype"])
    return dtypes.float32 if x is None else x.dtype


def _normal(node, shape, dtype):
    sample = ops.randn(shape, dtype=dtype, generator=_generator(node))
    return sample * node.get("scale", 1.0) + node.get("mean", 0.0)


def _uniform(node, shape, dtype):
    low, high = node.get("low", 0.0), node.get("high", 1.0)
    return ops.rand(shape, dtype=dtype, generator=_generator(node)) * (high - low) + low


@onnx_op("RandomNormal")
def random_normal(node):
    return _normal(node, tuple(node["shape"]), _dtype(node))


@onnx_op("RandomUniform")
def random_uniform(node):
    return _uniform(node, tuple(node["shape"]), _dtype(node))


@onnx_op("RandomNormalLike")
def random_normal_like(node, x):
    return _normal(node, tuple(x.shape), _dtype(node, x))


@onnx_op("RandomUniformLike")
def random_uniform_like(node, x):
    return _uniform(node, tuple(x.shape), _dtype(node, x))


@onnx_op("Bernoulli")
def bernoulli(node, p):
    sample = ops.rand(tuple(p.shape), dtype=dtypes.float32, generator=_generator(node)) < p
    return sample.to(_dtype(node, p))


@onnx_op("Multinomial")
def multinomial(node, log_p):
    """Unnormalised log-probabilities (batch, classes) -> (batch, sample_size)."""
    p = ops.softmax(log_p, axis=-1)
    sample = ops.multinomial(p, node.get("sample_size", 1), replacement=True, generator=_generator(node))
    return sample.to(dtype_of(node.get("dtype", 6)))
