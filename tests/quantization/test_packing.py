"""Numbers of 4 bits, two in a byte."""

from __future__ import annotations

import numpy as np
import pytest

import tandem as td
from tandem.ops.integer_products import unpacked, unpacked_int4
from tandem.quantization.packing import packed, packed_int4


@pytest.mark.parametrize("n, k", [(1, 1), (5, 7), (32, 4), (33, 130), (70, 64)])
def test_packing_and_back(n, k):
    numbers = td.randint(-127, 128, (n, k)).to(td.int8)
    np.testing.assert_array_equal(unpacked(packed(numbers), n, k).numpy(), numbers.numpy())
    fours = td.randint(-8, 8, (n, 3, 16))
    np.testing.assert_array_equal(unpacked_int4(packed_int4(fours), n).numpy(), fours.numpy())
