"""One file per family of primitives; importing them fills the table."""

from tandem.onnx.writers import elementwise, loops, memory, networks, reductions
from tandem.onnx.writers.registry import WRITERS
