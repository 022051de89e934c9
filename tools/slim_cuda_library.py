"""A CUDA library with the code of one compute capability: the rest becomes zeros, so that it packs small.

    python tools/slim_cuda_library.py libnccl.so.2 90 slim/libnccl.so.2

For machines that are reached over slow links. Other devices than that one cannot use the result.
"""

import argparse
import struct
from pathlib import Path

MAGIC = struct.pack("<I", 0xBA55ED50)  # of a container of device code
CONTAINER = struct.Struct("<IHHQ")  # magic, version, size of this header, bytes that follow
ENTRY = struct.Struct("<HHIQIIHHI")  # kind, -, size of this header, bytes that follow, -, -, minor, major, capability


def slim(data: bytearray, capability: int) -> tuple[int, int]:
    """Zeros the code of other capabilities; gives how many bytes of code there were, and how many stay."""
    total = kept = 0
    at = data.find(MAGIC)
    while at >= 0:
        _, version, header, size = CONTAINER.unpack_from(data, at)
        end = at + header + size
        if version != 1 or end > len(data):
            at = data.find(MAGIC, at + 4)
            continue
        entry = at + header
        while entry + ENTRY.size <= end:
            _, _, own, length, *_, found = ENTRY.unpack_from(data, entry)
            if own == 0:
                break
            total += length
            if found == capability:
                kept += length
            else:
                data[entry + own : entry + own + length] = bytes(length)
            entry += own + length
        at = data.find(MAGIC, end)
    return total, kept


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("library", type=Path)
    parser.add_argument("capability", type=int, help="such as 90")
    parser.add_argument("to", type=Path)
    options = parser.parse_args()
    data = bytearray(options.library.read_bytes())
    total, kept = slim(data, options.capability)
    if not kept:
        raise SystemExit(f"{options.library} has no code for capability {options.capability}")
    options.to.parent.mkdir(parents=True, exist_ok=True)
    options.to.write_bytes(data)
    print(f"{total / 2**20:.0f} MB of device code, of which {kept / 2**20:.0f} stay")


if __name__ == "__main__":
    main()
