"""td.save and td.load: what goes in comes out, damaged files say so, and an interrupted save leaves the old file."""

import random

import numpy as np

import tandem as td
from tandem import _runtime

# -- checksums


def test_crc32c_is_the_standard_one():
    assert 0xE3069283 == _runtime.crc32c(b"123456789")
    data = random.Random(2).randbytes(200_000)

    def slow(data, crc=0xFFFFFFFF):
        for byte in data:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        return crc ^ 0xFFFFFFFF

    assert slow(data) == _runtime.crc32c(data)
    assert _runtime.crc32c(data) == _runtime.crc32c(data[77:], _runtime.crc32c(data[:77]))
    large = np.frombuffer(random.Random(3).randbytes(5 << 20), np.uint8)
    expected = _runtime.crc32c(large.tobytes())
    assert [expected] == _runtime.checksum_tensors([td.from_numpy(large.copy())])
