"""Attention whose scores functions change and mask, as PyTorch's torch.nn.attention.flex_attention has it.

A score function is written for one score and its four indices, and runs inside of the kernel: no matrix of scores exists, forward
or backward (Note [Flexible attention] in ops/flex_attention.py). A block mask says in advance which blocks nobody sees.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Value, current_builder
from tandem.nn.attention.block_mask import (
    BlockMask,
    and_masks,
    create_block_mask,
    create_mask,
    noop_mask,
    or_masks,
)
from tandem.ops.flex_attention import FlexAttention, inlined, is_pointwise
from tandem.ops.prepare import constant
from tandem.ops.region import region_graph
from tandem.transforms.pointwise import INDEX, INDICES, matrix_graph, only
from tandem.transforms.traced import call, take

_NAME = "flex_attention"


class AuxRequest(NamedTuple):
    """What flex_attention gives besides its output."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """lse: logarithms of the sums of exponentials, (B, H, T); max_scores: the largest score of each row; None unless asked for."""

    lse: object = None
    max_scores: object = None


def flex_attention(query, key, value, score_mod=None, block_mask: BlockMask | None = None, scale: float | None = None,
                   enable_gqa: bool = False, return_lse: bool = False, kernel_options=None, *,
                   return_aux: AuxRequest | None = None):  # fmt: skip
    """softmax(score_mod(query @ key.mT * scale)) @ value over what the mask lets be seen, without holding the matrix of scores.

    query: (B, H, T, D), key: (B, H, S, D), value: (B, H, S, E) -> (B, H, T, E); with enable_gqa there may be fewer heads of keys.
    score_mod(score, b, h, q_idx, kv_idx) is given single elements and gives one; tensors that it captures may be indexed (positions
    beyond their ends count as the last), and take gradients. block_mask: see create_block_mask. return_lse: also the logarithms of
    sums of exponentials, (B, H, T). kernel_options are accepted and change nothing. Queries that see nothing give zeros.

    >>> x = td.ones(1, 1, 3, 2)
    >>> values = td.arange(3.0).reshape(1, 1, 3, 1)
    >>> distance = lambda score, b, h, q_idx, kv_idx: score - 100.0 * (q_idx - kv_idx).abs()
    >>> td.nn.attention.flex_attention.flex_attention(x, x, values, score_mod=distance).flatten()
    tensor([0., 1., 2.])
    """
    _check(query, key, value, enable_gqa)
    if return_aux is not None and return_aux.max_scores:
        raise ValueRangeError(_NAME, "max_scores are not kept", fix="ask for lse alone: AuxRequest(lse=True)")
    mask_mod = None if block_mask is None else block_mask.mask_mod
    operands = [query, key, value]
    if block_mask is not None:
        _check_mask(block_mask, query, key)
        operands.append(block_mask.kinds)
    wide = dtypes.float64 if query.dtype is dtypes.float64 else dtypes.float32
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else float(scale)

    def element(score, *indices):
        made = score if score_mod is None else _element("score_mod", score_mod(score, *indices))
        if not made.dtype.is_floating:
            raise DTypeError(_NAME, f"score_mod gives {made.dtype}; it must give a float, as the score is")
        if mask_mod is None:
            return [made]
        return [made, _seen(mask_mod(*indices))]

    grads = any(x.requires_grad for x in operands)
    specs = [(wide, [], grads), *[(INDEX, [], False)] * INDICES]
    result, state = take(_NAME, element, specs, operands)
    blocks = () if block_mask is None else tuple(block_mask.BLOCK_SIZE)

    def build(body, tensors, consts, generator):
        made = _build(body, tensors, consts, scale, blocks, mask_mod is not None)
        return made if sums else made[:1]  # a gradient of the sums, were it zeros, would be that of the whole matrix

    sums = return_lse or (return_aux is not None and return_aux.lse)
    settings = (scale, blocks, mask_mod is not None, sums)
    out, *rest = call(_NAME, result, operands, state, settings, build)
    lse = rest[0] if rest else None
    if return_aux is not None:
        return out, AuxOutput(lse=lse)
    return (out, lse) if return_lse else out


def _build(body, tensors: list[Value], consts: list[Value], scale: float, blocks: tuple, masks: bool):
    q, k, v, *kinds = tensors
    wide = dtypes.float64 if q.dtype is dtypes.float64 else dtypes.float32
    for x in (k, v):  # asking teaches that these sizes are one
        if x.shape[0] != q.shape[0] or x.shape[2] != k.shape[2] or q.shape[1] % x.shape[1] != 0:
            raise ShapeError(_NAME, "sizes of query, key and value do not fit")
    shape = (*q.shape[:3], k.shape[2])
    graph = matrix_graph(body, consts, shape, wide, 1)
    symbols = current_builder().graph.symbols
    types = [graph.inputs[0].type, graph.inputs[0].type, *(c.type for c in consts)]

    def scored(scores, slopes, *captured):
        return [F.Cast(wide)(x) if x.dtype is not wide else x for x in inlined(only(graph, 0), [scores, *captured])]

    def hidden(scores, slopes, *captured):
        made, seen = scored(scores, slopes, *captured)[0], inlined(only(graph, 1), [scores, *captured])[0]
        return [F.where(seen, made, constant(float("-inf"), wide))]

    score = region_graph(symbols, "score", types, scored)
    score = None if score.outputs[0] is score.inputs[0] else score
    masked = region_graph(symbols, "hidden", types, hidden) if masks else None
    op = FlexAttention(score, masked, None, None, False, False, False, scale, blocks)
    if all(map(is_pointwise, op.graphs())):
        return list(op(q, k, v, *kinds, *consts))
    return list(op.formula(q, k, v, *kinds, *consts))


def _element(name: str, made):
    if not hasattr(made, "dtype") or made.ndim:
        got = f"a tensor of shape {tuple(made.shape)}" if hasattr(made, "shape") else f"{made!r}"
        raise ShapeError(_NAME, f"{name} gives {got}; it is called for single elements, and must give one",
                         fix="compute with score and indices, and index what else it reads down to one element")  # fmt: skip
    return made


def _seen(made):
    made = _element("mask_mod", made)
    if made.dtype is not dtypes.bool_:
        raise DTypeError(_NAME, f"mask_mod gives {made.dtype}; it must give bool: True for what may be seen")
    return made


def _check(query, key, value, enable_gqa: bool):
    q, k, v = query.shape, key.shape, value.shape
    text = f"query is {tuple(q)}, key {tuple(k)} and value {tuple(v)}"
    if not len(q) == len(k) == len(v) == 4 or q[3] != k[3] or k[2] != v[2] or not q[0] == k[0] == v[0]:
        raise ShapeError(_NAME, f"{text}; they must be (B, H, T, D), (B, H, S, D) and (B, H, S, E)")
    if k[1] != v[1] or k[1] == 0 or q[1] % k[1] != 0:
        raise ShapeError(_NAME, f"{text}; query heads must share key heads evenly, and there are as many of values")
    if q[1] != k[1] and not enable_gqa:
        raise ShapeError(_NAME, f"{text}; there are fewer key heads than query heads", fix="pass enable_gqa=True")
    if not query.dtype.is_floating or query.dtype is not key.dtype or query.dtype is not value.dtype:
        raise DTypeError(
            _NAME, f"query is {query.dtype}, key {key.dtype} and value {value.dtype}; they must be one float type"
        )


def _check_mask(mask: BlockMask, query, key):
    if not isinstance(mask, BlockMask):
        raise DTypeError(_NAME, f"block_mask is a {type(mask).__name__}", fix="make one with create_block_mask")
    lengths = (query.shape[2], key.shape[2])
    if mask.seq_lengths != lengths:
        raise ShapeError(_NAME, f"block_mask was made for lengths {mask.seq_lengths}, and there are {lengths} queries and keys",
                         fix="make it with create_block_mask for these lengths")  # fmt: skip
    for axis, name in enumerate(("batch", "heads")):
        if mask.kinds.shape[axis] not in (1, query.shape[axis]):
            raise ShapeError(
                _NAME, f"block_mask has {name} {mask.kinds.shape[axis]}; it must be 1 or {query.shape[axis]}"
            )


__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask", "flex_attention", "noop_mask",
    "or_masks",
]  # fmt: skip
