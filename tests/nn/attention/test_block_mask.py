"""Masks by blocks."""

import pytest

from tandem.nn.attention.flex_attention import (
    BlockMask,
    and_masks,
    create_block_mask,
    create_mask,
    noop_mask,
    or_masks,
)
from tests.nn.cases import MASKS


def test_block_masks():
    causal = create_block_mask(MASKS["causal"], None, None, 300, 300)
    assert causal.shape == (1, 1, 300, 300) and causal.BLOCK_SIZE == (128, 128)
    assert causal.kinds[0, 0].tolist() == [[1, 0, 0], [2, 1, 0], [2, 2, 1]]
    assert causal.kv_num_blocks[0, 0].tolist() == [1, 1, 1] and causal.full_kv_num_blocks[0, 0].tolist() == [0, 1, 2]
    assert causal.kv_indices[0, 0, :, 0].tolist() == [0, 1, 2] and causal.q_num_blocks[0, 0].tolist() == [1, 1, 1]
    again = BlockMask.from_kv_blocks(
        causal.kv_num_blocks, causal.kv_indices, causal.full_kv_num_blocks, causal.full_kv_indices,
        mask_mod=MASKS["causal"], seq_lengths=(300, 300),
    )  # fmt: skip
    assert again.kinds.tolist() == causal.kinds.tolist()
    assert causal.sparsity() == pytest.approx(100 / 3)
    assert "sparsity=33.33%" in repr(causal)
    both = and_masks(MASKS["causal"], lambda b, h, i, j: i - j < 2)
    assert create_mask(both, None, None, 3, 3)[0, 0].long().tolist() == [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    either = or_masks(MASKS["causal"], lambda b, h, i, j: j == 2)
    assert create_mask(either, 1, 1, 2, 3)[0, 0].long().tolist() == [[1, 0, 1], [1, 1, 1]]
    assert create_mask(noop_mask, 2, 1, 2, 2).all()
