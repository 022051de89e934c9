"""Logs of runs."""

import json
import struct

from tandem.training import (
    CSVLog,
    JSONLog,
    TensorBoardLog,
)
from tandem.training.logs import crc32c

# -- logs


def test_logs(tmp_path):
    log = CSVLog(tmp_path / "a.csv")
    log.write(1, {"loss": 2.0})
    log.write(2, {"loss": 1.0, "accuracy": 0.5})
    CSVLog(tmp_path / "a.csv").write(3, {"loss": 0.5, "accuracy": 0.75})
    assert (tmp_path / "a.csv").read_text().split() == ["step,loss,accuracy", "1,2.0,", "2,1.0,0.5", "3,0.5,0.75"]
    log = JSONLog(tmp_path / "a.jsonl")
    log.write(1, {"loss": 2.0})
    log.close()
    assert json.loads((tmp_path / "a.jsonl").read_text())["loss"] == 2.0


def test_event_files_have_the_form_that_tensorboard_reads(tmp_path):
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
    log = TensorBoardLog(tmp_path / "events")
    log.write(7, {"loss": 0.5})
    log.close()
    (file,) = (tmp_path / "events").iterdir()
    content, records = file.read_bytes(), []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        records.append(content[12 : 12 + length])
        content = content[16 + length :]
    assert b"brain.Event:2" in records[0]
    assert b"loss" in records[1] and struct.pack("<f", 0.5) in records[1] and b"\x10\x07" in records[1]
