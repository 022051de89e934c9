"""Parts of complex numbers, and Fourier transforms."""

from __future__ import annotations

from tandem import dtypes
from tandem.export.composition import composition
from tandem.export.stablehlo.writer import is_dynamic, tensor, type_of, writes
from tandem.graph.symbolic import Sym


@writes("part")
def part(w, node, x):
    out = node.outputs[0]
    return w.op(("real", "imag")[node.op.index], [x], out.dtype, out.shape, [type_of(node.inputs[0].type)])


@writes("fourier_parts")
def fourier(w, node, re, im):
    """As one complex tensor; StableHLO's inverse is divided by its size."""
    given = node.inputs[0]
    if is_dynamic(given.shape):
        symbols = next(n.symbols for n in given.shape if isinstance(n, Sym))
        return w.inline(composition(node, symbols), [re, im])
    n, dtype = given.shape[-1], dtypes.COMPLEX_OF[given.dtype]
    whole = w.op("complex", [re, im], dtype, given.shape, [type_of(given.type)] * 2)
    kind, source = "FFT" if node.op.forward else "IFFT", [tensor(dtype, given.shape)]
    made = w.op("fft", [whole], dtype, given.shape, source, f", type = {kind}, length = [{n}]")
    parts = [w.op(name, [made], given.dtype, given.shape, source) for name in ("real", "imag")]
    if not node.op.forward:
        factor = w.full(n, given.dtype, given.shape)
        parts = [w.op("multiply", [p, factor], given.dtype, given.shape) for p in parts]
    return tuple(parts)
