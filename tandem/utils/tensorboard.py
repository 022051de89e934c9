"""SummaryWriter: scalars, text, histograms and images in event files that TensorBoard reads."""

from __future__ import annotations

import struct
import time
import zlib

import tandem as td
from tandem.training.logs import EventFile, bytes_field, double_field, float_field, varint_field

__all__ = ["SummaryWriter"]


class SummaryWriter:
    """Writes what it is told to `log_dir`, under PyTorch's names.

    >>> with td.utils.tensorboard.SummaryWriter("runs/first") as writer:
    ...     writer.add_scalar("loss", 0.5, global_step=1)
    """

    def __init__(self, log_dir=None, comment: str = "", **unused):
        self.log_dir = str(log_dir) if log_dir else time.strftime("runs/%b%d_%H-%M-%S") + comment
        self._events = EventFile(self.log_dir)

    def add_scalar(self, tag: str, scalar_value, global_step: int | None = None, walltime: float | None = None):
        self._add(tag, float_field(2, float(scalar_value)), global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: dict, global_step: int | None = None, walltime: float | None = None
    ):
        """Several curves: each is written as main_tag/name."""
        for name, value in tag_scalar_dict.items():
            self.add_scalar(f"{main_tag}/{name}", value, global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None):
        # A tensor of one string (DT_STRING = 7), which the text plugin shows.
        tensor = (
            varint_field(1, 7)
            + bytes_field(2, bytes_field(2, varint_field(1, 1)))
            + bytes_field(8, text_string.encode())
        )
        plugin = bytes_field(9, bytes_field(1, bytes_field(1, b"text")))
        self._add(f"{tag}/text_summary", bytes_field(8, tensor) + plugin, global_step, walltime)

    def add_histogram(
        self, tag: str, values, global_step: int | None = None, bins: int = 64, walltime: float | None = None
    ):
        values = td.asarray(values).detach().cpu().to(td.float64).reshape(-1)
        values = values[values.isfinite()]
        if values.size == 0:
            raise ValueError(f"add_histogram: {tag!r} has no finite value")
        low, high = values.min().item(), values.max().item()
        if low == high:
            low, high = low - 0.5, high + 0.5
        counts = td.histc(values, bins, low, high)
        limits = [low + (high - low) * (i + 1) / bins for i in range(bins)]
        message = b"".join(
            double_field(number, value)
            for number, value in enumerate(
                (
                    values.min().item(),
                    values.max().item(),
                    values.size,
                    values.sum().item(),
                    (values * values).sum().item(),
                ),
                1,
            )
        )
        message += bytes_field(6, struct.pack(f"<{bins}d", *limits))
        message += bytes_field(7, struct.pack(f"<{bins}d", *counts.tolist()))
        self._add(tag, bytes_field(5, message), global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ):
        """One picture: floats in [0, 1], or integers in [0, 255]."""
        image = td.asarray(img_tensor).detach().cpu()
        if dataformats == "HW":
            image = image[None]
        elif dataformats == "HWC":
            image = image.permute(2, 0, 1)
        elif dataformats != "CHW":
            raise ValueError(f"add_image: dataformats is {dataformats!r}; it must be 'CHW', 'HWC' or 'HW'")
        if image.dtype.is_inexact:
            image = (image.clamp(0, 1) * 255).round()
        channels, height, width = image.shape
        if channels not in (1, 3, 4):
            raise ValueError(f"add_image: {channels} channels; a picture has 1, 3 or 4")
        pixels = bytes(image.to(td.uint8).permute(1, 2, 0).contiguous().numpy())
        message = varint_field(1, height) + varint_field(2, width) + varint_field(3, channels)
        message += bytes_field(4, _png(pixels, width, height, channels))
        self._add(tag, bytes_field(4, message), global_step, walltime)

    def add_hparams(self, hparam_dict: dict, metric_dict: dict, **unused):
        """The settings of a run as text, and its results as scalars."""
        rows = "\n".join(f"| {name} | {value} |" for name, value in hparam_dict.items())
        self.add_text("hparams", f"| setting | value |\n| --- | --- |\n{rows}")
        for name, value in metric_dict.items():
            self.add_scalar(name, value)

    def add_graph(self, model, input_to_model=None, verbose: bool = False, use_strict_trace: bool = True):
        """The operators of a call of a model, as td.compile sees them: parameters are inputs."""
        given = input_to_model if isinstance(input_to_model, (tuple, list)) else (input_to_model,)
        program = td.compile(lambda *args: model(*args))
        with td.no_grad():
            program(*given)
        nodes = b"".join(bytes_field(1, node) for node in _nodes_of(program.graph()))
        self._open().event(bytes_field(4, nodes + bytes_field(4, varint_field(1, 22))), 0)

    def flush(self):
        if not self._events.closed:
            self._events.flush()

    def close(self):
        self._events.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def _open(self) -> EventFile:
        """The file that events go to: after close() another one, as in PyTorch."""
        if self._events.closed:
            self._events = EventFile(self.log_dir)
        return self._events

    def _add(self, tag: str, value: bytes, step: int | None, walltime: float | None):
        summary = bytes_field(1, bytes_field(1, tag.encode()) + value)
        self._open().event(bytes_field(5, summary), 0 if step is None else int(step), walltime)


def _nodes_of(graph) -> list[bytes]:
    """The nodes of a graph as messages: name, operator, and the names of what they are made of."""
    names: dict = {}
    made = []
    for node in graph.nodes:
        names[node] = f"{node.op.name}_{len(names)}"
        message = bytes_field(1, names[node].encode()) + bytes_field(2, node.op.name.encode())
        for value in node.inputs:
            made_by, place = value.node, value.node.outputs.index(value)
            message += bytes_field(3, f"{names[made_by]}:{place}".encode() if place else names[made_by].encode())
        made.append(message)
    return made


def _png(pixels: bytes, width: int, height: int, channels: int) -> bytes:
    row = width * channels
    lines = b"".join(b"\0" + pixels[y * row : (y + 1) * row] for y in range(height))
    kind = {1: 0, 3: 2, 4: 6}[channels]

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
