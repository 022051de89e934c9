"""Decoding of image files."""

from __future__ import annotations

import io

import numpy as np

from tandem.errors import UnsupportedError
from tandem.onnx.registry import onnx_op


@onnx_op("ImageDecoder", host=True)
def decode(node, data):
    """Bytes of an image file -> (height, width, channels) of uint8."""
    try:
        from PIL import Image
    except ImportError:
        raise UnsupportedError(
            "onnx ImageDecoder", "the package pillow is not installed", fix="pip install pillow, or 'tandem-dl[data]'"
        ) from None
    image = Image.open(io.BytesIO(data.tobytes()))
    form = node.get("pixel_format", "RGB")
    pixels = np.array(image.convert("L" if form == "Grayscale" else "RGB"))
    if form == "Grayscale":
        return pixels[:, :, None]
    return pixels[:, :, ::-1].copy() if form == "BGR" else pixels
