"""Numbers of a run in files: CSV, JSON lines, and event files that TensorBoard reads."""

from __future__ import annotations

import csv
import io
import json
import os
import socket
import struct
import time

from tandem import files


class CSVLog:
    """One line for each call of write; columns as they come, so files with new columns are written again."""

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
        text = io.StringIO()
        writer = csv.DictWriter(text, self._columns)
        if new:
            writer.writeheader()
            writer.writerows(self._rows)
            files.write(self.path, text.getvalue(), durable=False)
        else:
            writer.writerow(row)
            with open(self.path, "a", newline="") as file:
                file.write(text.getvalue())

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


class EventFile:
    """An event file in `folder`, as TensorBoard reads it: records of length, checksum and a protocol buffer."""

    _count = 0

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        EventFile._count += 1  # two writers of one process and second
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{EventFile._count}"
        self._file = open(os.path.join(folder, name), "ab")
        self._record(double_field(1, time.time()) + bytes_field(3, b"brain.Event:2"))

    def event(self, content: bytes, step: int, walltime: float | None = None):
        """One event: `content` is its summary as a field of the message."""
        self._record(double_field(1, walltime or time.time()) + varint_field(2, step) + content)

    def _record(self, data: bytes):
        length = struct.pack("<Q", len(data))
        self._file.write(length + _masked_crc(length) + data + _masked_crc(data))

    @property
    def closed(self) -> bool:
        return self._file.closed

    def flush(self):
        self._file.flush()

    def close(self):
        self._file.close()


class TensorBoardLog(EventFile):
    """The numbers of a run in an event file; td.utils.tensorboard.SummaryWriter writes more than numbers."""

    def write(self, step: int, values: dict):
        for tag, value in values.items():
            if isinstance(value, (int, float)):
                self.event(
                    bytes_field(5, bytes_field(1, bytes_field(1, tag.encode()) + float_field(2, float(value)))), step
                )
        self.flush()


# -- protocol buffers and checksums, as little of them as events need


def _varint(n: int) -> bytes:
    out = bytearray()
    n &= (1 << 64) - 1
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def varint_field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def double_field(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def float_field(number: int, value: float) -> bytes:
    return _varint(number << 3 | 5) + struct.pack("<f", value)


def bytes_field(number: int, value: bytes) -> bytes:
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
