"""What embedding layers do besides looking rows up: bags, norms of rows, frequencies."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.autograd.modes import no_grad
from tandem.errors import ShapeError, ValueRangeError
from tandem.ops.define import op
from tandem.ops.precision import in_float32, wide_dtype
from tandem.ops.prepare import show_shape
from tandem.sparse.lookup import sparse_embedding


def embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean", sparse=False,
                  per_sample_weights=None, include_last_offset=False, padding_idx=None):  # fmt: skip
    """Sums, means or maxima over bags of rows of weight.

    input: (B, N) of integers, or (N) with offsets (B) where bags begin -> (B, D). per_sample_weights: shape of input, for "sum".
    padding_idx: a row that counts as not there, from the end if negative. Empty bags give zeros.

    >>> td.nn.functional.embedding_bag(td.tensor([[0, 1]]), td.tensor([[1.0], [5.0]]))
    tensor([[3.]])
    """
    if mode not in ("sum", "mean", "max"):
        raise ValueRangeError("embedding_bag", f"mode is {mode!r}; it must be 'sum', 'mean' or 'max'")
    if per_sample_weights is not None and mode != "sum":
        raise ValueRangeError("embedding_bag", f"per_sample_weights go with mode 'sum', not {mode!r}")
    if input.ndim == 2:
        if offsets is not None:
            raise ShapeError("embedding_bag", f"input {input.shape} holds a bag in each row; offsets go with one axis")
    elif input.ndim != 1 or offsets is None:
        raise ShapeError("embedding_bag", f"input is {input.shape}; it must be (B, N), or (N) with offsets")
    if max_norm is not None:
        renormalize_rows_(weight, input, max_norm, norm_type)
    if padding_idx is not None:
        rows = weight.shape[0]
        if not -rows <= padding_idx < rows:
            raise ValueRangeError("embedding_bag", f"padding_idx is {padding_idx}; weight has {rows} rows")
        padding_idx %= rows
    if sparse:
        if mode == "max":
            raise ValueRangeError("embedding_bag", "mode 'max' has no sparse gradient", fix="leave sparse=True out")
        weight = sparse_embedding(input, weight, padding_idx, scale_grad_by_freq)
    elif scale_grad_by_freq:
        weight = scale_gradient_by_frequency(F.embedding(input, weight, padding_idx), input, weight.shape[0])
    looked_up = sparse or scale_grad_by_freq
    if offsets is None:
        return _rows_of_bags(input, weight, per_sample_weights, mode, padding_idx, looked_up)
    if include_last_offset:
        offsets = offsets[:-1]
    return _bags_by_offsets(input, weight, offsets, per_sample_weights, mode, padding_idx, looked_up)


def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """Rows of a table by index. padding_idx: a row that takes no part in gradients; max_norm: rows that are used are shortened to
    it first, in place; scale_grad_by_freq: gradients are divided by how often a row is used; sparse: the gradient of weight is
    sparse and holds only the rows that were used.

    input: (*) of integers, weight: (V, D) -> (*, D)

    >>> td.nn.functional.embedding(td.tensor([1, 1]), td.tensor([[1.0], [5.0]]))
    tensor([[5.],
            [5.]])
    """
    if max_norm is not None:
        renormalize_rows_(weight, input, max_norm, norm_type)
    if sparse:
        return sparse_embedding(input, weight, padding_idx, scale_grad_by_freq)
    out = F.embedding(input, weight, padding_idx)
    return scale_gradient_by_frequency(out, input, weight.shape[0]) if scale_grad_by_freq else out


def _count(kept, axis: int):
    return F.astype(F.maximum(F.sum(kept, axis, keepdims=True), 1), dtypes.float32)


@op(hidden=True, name="embedding_bag")
@in_float32
def _rows_of_bags(x: Tensor, weight: Tensor, scale: Tensor | None, mode, padding_idx, looked_up):
    """looked_up: weight is the rows already, one for every element of x."""
    rows = weight if looked_up else F.embedding(x, weight, padding_idx)
    if scale is not None:
        rows = rows * F.unsqueeze(scale, -1)
    if mode != "max":
        if padding_idx is None:
            return F.sum(rows, 1) if mode == "sum" else F.mean(rows, 1)
        kept = F.unsqueeze(F.not_equal(x, padding_idx), -1)
        total = F.sum(F.where(kept, rows, 0), 1)
        return total if mode == "sum" else total / F.astype(F.squeeze(_count(kept, 1), 1), weight.dtype)
    if padding_idx is None:
        return F.amax(rows, 1)
    kept = F.unsqueeze(F.not_equal(x, padding_idx), -1)
    best = F.amax(F.where(kept, rows, float("-inf")), 1)
    return F.where(F.any(kept, 1), best, 0)


@op(hidden=True, name="embedding_bag")
@in_float32
def _bags_by_offsets(x: Tensor, weight: Tensor, offsets: Tensor, scale: Tensor | None, mode, padding_idx, looked_up):
    if offsets.ndim != 1:
        raise ShapeError("embedding_bag", f"offsets are {show_shape(offsets.shape)}; they must have one axis")
    n, bags = x.shape[0], offsets.shape[0]
    # The bag of an element: how many bags begin at or before it.
    place = F.Iota((n, bags), 0, dtypes.int64)()
    begin = F.expand(F.reshape(F.astype(offsets, dtypes.int64), (1, bags)), (n, bags))
    bag = F.sum(F.less_equal(begin, place), 1) - 1
    rows = weight if looked_up else F.embedding(x, weight, padding_idx)
    if scale is not None:
        rows = rows * F.unsqueeze(scale, -1)
    kept = F.full((n,), True, dtype=dtypes.bool_) if padding_idx is None else F.not_equal(x, padding_idx)
    zeros = F.full((bags, weight.shape[1]), 0, dtype=weight.dtype)
    counts = F.index_add(F.full((bags,), 0, dtype=dtypes.float32), 0, bag, F.astype(kept, dtypes.float32))
    counts = F.unsqueeze(counts, -1)
    if mode == "max":
        lowest = F.full((bags, weight.shape[1]), float("-inf"), dtype=weight.dtype)
        best = F.index_reduce(lowest, 0, bag, F.where(F.unsqueeze(kept, -1), rows, float("-inf")), "amax")
        return F.where(F.greater(counts, 0), best, zeros)
    total = F.index_add(zeros, 0, bag, F.where(F.unsqueeze(kept, -1), rows, 0))
    return total if mode == "sum" else total / F.astype(F.maximum(counts, 1), weight.dtype)


def renormalize_rows_(weight, index, max_norm: float, norm_type: float = 2.0):
    """Shortens, in place, the rows of weight that index names to at most max_norm."""
    with no_grad():
        used = F.reshape(index, (-1,))
        rows = F.index_select(weight, 0, used)
        norms = F.vector_norm(rows, float(norm_type), 1, True)
        scaled = F.where(norms > max_norm, rows * (max_norm / (norms + 1e-7)), rows)
        F.index_copy_(weight.detach(), 0, used, scaled)


@op(hidden=True)
def scale_gradient_by_frequency(out: Tensor, index: Tensor, rows: Int):
    """out as it is, whose gradient is divided by how often its row is in index."""
    flat = F.reshape(index, (-1,))
    dtype = wide_dtype(out.dtype)
    counts = F.index_add(F.full((rows,), 0, dtype=dtype), 0, flat, F.full((flat.shape[0],), 1, dtype=dtype))
    share = F.unsqueeze(F.reshape(1 / F.index_select(counts, 0, flat), index.shape), -1)
    share = F.astype(share * out, out.dtype)
    return F.stop_gradient(out - share) + share
