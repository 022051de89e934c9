"""Which blocks of a matrix of scores are seen: PyTorch's BlockMask, and masks given by functions of indices."""

from __future__ import annotations

import functools

import numpy

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.ops.flex_attention import inlined
from tandem.ops.prepare import constant
from tandem.tensors.constructors import asarray
from tandem.transforms.pointwise import INDEX, INDICES, matrix_graph
from tandem.transforms.traced import call, take

_DEFAULT = 128
NOTHING, SOME, ALL = 0, 1, 2  # kinds of blocks, as src/library/attention_impl.h numbers them


def noop_mask(batch, head, q_idx, kv_idx):
    """Everything is seen.

    >>> bool(td.nn.attention.flex_attention.noop_mask(0, 0, td.tensor(1), td.tensor(2)))
    True
    """
    return F.ones_like(q_idx, dtype=dtypes.bool_)


def _combined(name: str, combine, mask_mods):
    for m in mask_mods:
        if not callable(m):
            raise DTypeError(name, f"it combines functions, and was given a {type(m).__name__}")
    return lambda b, h, q_idx, kv_idx: functools.reduce(combine, (m(b, h, q_idx, kv_idx) for m in mask_mods))


def and_masks(*mask_mods):
    """A mask function: what all of these let be seen.

    >>> flex = td.nn.attention.flex_attention
    >>> causal = lambda b, h, q_idx, kv_idx: q_idx >= kv_idx
    >>> near = lambda b, h, q_idx, kv_idx: q_idx - kv_idx < 2
    >>> flex.create_mask(flex.and_masks(causal, near), 1, 1, 3, 3)[0, 0].long()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [0, 1, 1]])
    """
    return _combined("and_masks", lambda a, b: a & b, mask_mods)


def or_masks(*mask_mods):
    """A mask function: what at least one of these lets be seen."""
    return _combined("or_masks", lambda a, b: a | b, mask_mods)


def _matrix(name: str, mask_mod, batch, heads, queries: int, keys: int, settings: tuple, finish):
    """finish(the whole mask as a value), of a mask function, in one operator: kernels that need no more than its result."""
    shape = tuple(1 if n is None else n for n in (batch, heads)) + (queries, keys)

    def element(*indices):
        made = mask_mod(*indices)
        if not hasattr(made, "dtype") or made.ndim or made.dtype is not dtypes.bool_:
            raise DTypeError(name, "mask_mod must give one bool for single indices: True for what may be seen")
        return [made]

    result, state = take(name, element, [(INDEX, [], False)] * INDICES, [])

    def build(body, tensors, consts, generator):
        return [finish(inlined(matrix_graph(body, consts, shape, dtypes.float32, 0), consts)[0])]

    return call(name, result, [], state, (shape, *settings), build)[0]


def create_mask(mod_fn, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device=None):
    """The whole mask of a mask function, (B, H, Q_LEN, KV_LEN); without B or H, 1.

    >>> td.nn.attention.flex_attention.create_mask(lambda b, h, q, kv: q >= kv, None, None, 2, 2)
    tensor([[[[ True, False],
              [ True,  True]]]])
    """
    made = _matrix("create_mask", mod_fn, B, H, Q_LEN, KV_LEN, (), lambda mask: mask)
    return made if device is None else made.to(device)


def create_block_mask(mask_mod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device=None,
                      BLOCK_SIZE: int | tuple[int, int] = _DEFAULT, _compile: bool = False) -> BlockMask:  # fmt: skip
    """For flex_attention: which blocks of the scores mask_mod(b, h, q_idx, kv_idx) -> bool leaves empty or whole.

    B, H: None where the mask is the same for all. Make it once and use it for many calls; it must be made again when what mask_mod
    captures changes. The mask as a whole is never held.

    >>> flex = td.nn.attention.flex_attention
    >>> causal = flex.create_block_mask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, None, None, 512, 512)
    >>> causal.shape, causal.sparsity()
    ((1, 1, 512, 512), 37.5)
    """
    rows, columns = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    if min(rows, columns, Q_LEN, KV_LEN) < 1:
        raise ValueRangeError(
            "create_block_mask", f"lengths are {(Q_LEN, KV_LEN)} and blocks {(rows, columns)}; they must be positive"
        )
    down, across = -(-Q_LEN // rows), -(-KV_LEN // columns)

    def kinds(mask):
        lead = mask.shape[:2]
        padded = F.Embed((0,) * 4, (1,) * 4, (*lead, down * rows, across * columns))(F.Cast(dtypes.int32)(mask))
        seen = F.sum(F.Reshape((*lead, down, rows, across, columns))(padded), (3, 5))
        # blocks at the ends have fewer elements
        sizes = [
            F.minimum(
                constant(n, dtypes.int32),
                constant(length, dtypes.int32) - F.Iota((count,), 0, dtypes.int32)() * constant(n, dtypes.int32),
            )
            for n, length, count in ((rows, Q_LEN, down), (columns, KV_LEN, across))
        ]
        whole = F.equal(seen, F.expand(F.unsqueeze(sizes[0], 1) * F.unsqueeze(sizes[1], 0), seen.shape))
        some = F.not_equal(seen, constant(0, seen.dtype))
        return F.Cast(dtypes.uint8)(F.Cast(dtypes.int32)(whole) + F.Cast(dtypes.int32)(some))

    made = _matrix("create_block_mask", mask_mod, B, H, Q_LEN, KV_LEN, (rows, columns), kinds)
    made = made if device is None else made.to(device)
    return BlockMask(made, (Q_LEN, KV_LEN), (rows, columns), mask_mod)


class BlockMask:
    """Which blocks of a matrix of scores are seen; made by create_block_mask, or from_kv_blocks.

    kinds: (B, H, blocks of queries, blocks of keys) uint8: 0 nothing, 1 some, 2 all of it is seen. kv_num_blocks, kv_indices,
    full_kv_num_blocks, full_kv_indices are PyTorch's form of the same, as are those with q_.
    """

    def __init__(self, kinds, seq_lengths: tuple[int, int], block_size: tuple[int, int], mask_mod=None):
        self.kinds = kinds
        self.seq_lengths = tuple(seq_lengths)
        self.BLOCK_SIZE = tuple(block_size)
        self.mask_mod = mask_mod or noop_mask

    @classmethod
    def from_kv_blocks(cls, kv_num_blocks, kv_indices, full_kv_num_blocks=None, full_kv_indices=None,
                       BLOCK_SIZE: int | tuple[int, int] = _DEFAULT, mask_mod=None, seq_lengths=None,
                       compute_q_blocks: bool = True) -> BlockMask:  # fmt: skip
        """Of the numbers of blocks that each block of queries sees, and which ones they are: the first so many of kv_indices."""
        if kv_indices.ndim < 2 or tuple(kv_num_blocks.shape) != tuple(kv_indices.shape[:-1]):
            raise ShapeError("from_kv_blocks", f"kv_num_blocks is {tuple(kv_num_blocks.shape)} and kv_indices "
                             f"{tuple(kv_indices.shape)}; they must be (B, H, rows) and (B, H, rows, columns)")  # fmt: skip
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise ValueRangeError("from_kv_blocks", "full_kv_num_blocks and full_kv_indices come together")
        kinds = _dense(kv_num_blocks, kv_indices) * SOME
        if full_kv_indices is not None:
            kinds = numpy.where(_dense(full_kv_num_blocks, full_kv_indices), ALL, kinds)
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
        lengths = seq_lengths or (kinds.shape[-2] * size[0], kinds.shape[-1] * size[1])
        shaped = kinds.astype(numpy.uint8).reshape((1,) * (4 - kinds.ndim) + kinds.shape)
        return cls(asarray(shaped), lengths, size, mask_mod)

    def _listed(self, wanted, axis: int) -> tuple:
        """(numbers, indices) of the blocks along an axis."""
        found = numpy.asarray(self.kinds.cpu() if hasattr(self.kinds, "cpu") else self.kinds) == wanted
        found = found if axis == 3 else found.swapaxes(2, 3)
        order = numpy.argsort(~found, axis=3, kind="stable").astype(numpy.int32)
        return asarray(found.sum(3).astype(numpy.int32)), asarray(order)

    kv_num_blocks = property(lambda self: self._listed(SOME, 3)[0])
    kv_indices = property(lambda self: self._listed(SOME, 3)[1])
    full_kv_num_blocks = property(lambda self: self._listed(ALL, 3)[0])
    full_kv_indices = property(lambda self: self._listed(ALL, 3)[1])
    q_num_blocks = property(lambda self: self._listed(SOME, 2)[0])
    q_indices = property(lambda self: self._listed(SOME, 2)[1])
    full_q_num_blocks = property(lambda self: self._listed(ALL, 2)[0])
    full_q_indices = property(lambda self: self._listed(ALL, 2)[1])

    @property
    def shape(self) -> tuple:
        return (*self.kinds.shape[:2], *self.seq_lengths)

    def numel(self) -> int:
        return int(numpy.prod(self.shape))

    def to_dense(self):
        """(B, H, blocks, blocks): 1 where something is seen."""
        return F.not_equal(self.kinds, NOTHING).to(dtypes.int32)

    def sparsity(self) -> float:
        """How much of the matrix is left out, in percent."""
        return 100.0 * (1.0 - float(self.to_dense().to(dtypes.float64).mean()))

    def to(self, device) -> BlockMask:
        return BlockMask(self.kinds.to(device), self.seq_lengths, self.BLOCK_SIZE, self.mask_mod)

    def __getitem__(self, index) -> BlockMask:
        """Some batches, heads or blocks of queries. The function keeps its indices: give it others by way of `mask_mod`."""
        kinds = self.kinds[index]
        kinds = kinds.reshape(*(1 for _ in range(4 - kinds.ndim)), *kinds.shape)
        rows = min(kinds.shape[2] * self.BLOCK_SIZE[0], self.seq_lengths[0])
        return BlockMask(kinds, (rows, self.seq_lengths[1]), self.BLOCK_SIZE, self.mask_mod)

    def __repr__(self):
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, BLOCK_SIZE={self.BLOCK_SIZE})"


def _dense(numbers, indices) -> numpy.ndarray:
    numbers, indices = numpy.asarray(numbers), numpy.asarray(indices)
    made = numpy.zeros(indices.shape, bool)
    numpy.put_along_axis(made, indices, numpy.arange(indices.shape[-1]) < numbers[..., None], axis=-1)
    return made
