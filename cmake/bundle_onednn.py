"""Copies oneDNN's library, relinked from libgomp to Tandem's own OpenMP stand-in (src/library/openmp/shim.cc).

usage: bundle_onednn.py LIBDNNL OUTPUT

The names of the needed library and of the OpenMP functions are replaced in the dynamic string table by names of the same
length, so nothing else in the file moves.
"""

import pathlib
import re
import struct
import sys

SERVED = {
    "GOMP_barrier", "GOMP_loop_end_nowait", "GOMP_loop_static_next", "GOMP_loop_static_start", "GOMP_parallel",
    "GOMP_parallel_end", "GOMP_parallel_start", "omp_get_max_threads", "omp_get_num_threads", "omp_get_thread_num",
    "omp_in_parallel",
}  # fmt: skip


def dynamic_strings(image):
    """Offset and size of the dynamic string table (section .dynstr) of a 64-bit little-endian ELF file."""
    if image[:6] != b"\x7fELF\x02\x01":
        sys.exit("not a 64-bit little-endian ELF file")
    sections_at, entry_size, count, names_index = (
        struct.unpack_from("<Q", image, 0x28)[0],
        *struct.unpack_from("<HHH", image, 0x3A),
    )
    sections = [struct.unpack_from("<IIQQQQ", image, sections_at + i * entry_size) for i in range(count)]
    names_at = sections[names_index][4]
    for name, _, _, _, offset, size in sections:
        if image[names_at + name :].startswith(b".dynstr\0") if name else False:
            return offset, size
    sys.exit("no .dynstr section")


def main(source, target):
    image = bytearray(pathlib.Path(source).read_bytes())
    offset, size = dynamic_strings(memoryview(image).tobytes())
    strings = bytes(image[offset : offset + size])

    used = {n.decode() for n in re.findall(rb"(?<=\0)(?:GOMP|omp)_[a-z_]+(?=\0)", strings)}
    if unserved := used - SERVED:
        sys.exit("OpenMP functions that the stand-in does not have: " + ", ".join(sorted(unserved)))
    for old, new in [
        ("libgomp.so.1", "libtomp.so.1"),
        *((n, re.sub("^GOMP", "TDMP", re.sub("^omp", "tdp", n))) for n in used),
    ]:
        if strings.count(f"\0{old}\0".encode()) != 1:
            sys.exit(f"expected exactly one {old} among the dynamic strings")
        strings = strings.replace(f"\0{old}\0".encode(), f"\0{new}\0".encode())
    image[offset : offset + size] = strings
    pathlib.Path(target).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(target).write_bytes(image)


main(*sys.argv[1:])
