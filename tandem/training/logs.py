"""Numbers of a run in files: CSV, JSON lines, and event files that TensorBoard reads."""

from __future__ import annotations

import csv
import json
import os
import socket
import struct
import time


class CSVLog:
    """One line for each call of write; columns as they come, so files with new columns are written anew."""

    def __init__(self, path):
        self.path = os.fspath(path)
        self._rows: list[dict] = []
        self._columns: list[str] = []
        if os.path.exists(self.path):
            with open(self.path, newline="") as file:
                reader = csv.DictReader(file)
                self._rows, self._columns = list(reader), list(reader.fieldnames or [])

    def write(self, step: int, values: dict):
        row = {"step": step, **values}
        self._rows.append(row)
        new = [name for name in row if name not in self._columns]
        self._columns += new
        with open(self.path, "w" if new else "a", newline="") as file:
            writer = csv.DictWriter(file, self._columns)
            if new:
                writer.writeheader()
                writer.writerows(self._rows)
            else:
                writer.writerow(row)

    def close(self):
        pass


class JSONLog:
    """One JSON object a line."""

    def __init__(self, path):
        self._file = open(path, "a")

    def write(self, step: int, values: dict):
        self._file.write(json.dumps({"step": step, "time": time.time(), **values}) + "\n")
        self._file.flush()

    def close(self):
        self._file.close()


class TensorBoardLog:
    """An event file in `folder`, as TensorBoard reads it: records of length, checksum and a protocol buffer."""

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self._file = open(os.path.join(folder, name), "ab")
        self._record(_double(1, time.time()) + _bytes(3, b"brain.Event:2"))

    def write(self, step: int, values: dict):
        for tag, value in values.items():
            if isinstance(value, (int, float)):
                summary = _bytes(1, _bytes(1, tag.encode()) + _float(2, float(value)))
                self._record(_double(1, time.time()) + _varint_field(2, step) + _bytes(5, summary))
        self._file.flush()

    def _record(self, data: bytes):
        length = struct.pack("<Q", len(data))
        self._file.write(length + _masked_crc(length) + data + _masked_crc(data))

    def close(self):
        self._file.close()


# -- protocol buffers and checksums, as little of them as events need


def _varint(n: int) -> bytes:
    out = bytearray()
    n &= (1 << 64) - 1
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def _varint_field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _float(number: int, value: float) -> bytes:
    return _varint(number << 3 | 5) + struct.pack("<f", value)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _table() -> list[int]:
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)  # CRC-32C, reflected
        table.append(n)
    return table


_CRC = _table()


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value = _CRC[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def _masked_crc(data: bytes) -> bytes:
    value = crc32c(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)
