"""Depthwise convolutions on CUDA devices, one filter per channel: bound by memory, and served badly by general routines.

Threads along x own a few neighbouring channels; threads along y take runs of neighbouring positions (cuda/depthwise_runs.py), or,
where windows have holes, single ones, with the filters in registers (here).
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.buffer import Buffer
from tandem.codegen.cuda.depthwise_runs import HELPERS, fits, gathers, sums
from tandem.codegen.cuda.nests import shares
from tandem.codegen.cuda.ops import C_TYPE
from tandem.codegen.cuda.text import Text, read, write
from tandem.graph.symbolic import ceildiv, hint, product

POSITIONS = 8  # that a thread runs through, one after the other
REGISTERS = 72  # for filters


def _fixed(d) -> int:
    """The concrete size; a symbolic one is fixed by a guard."""
    if type(d) is int:
        return d
    value = hint(d)
    return value if d == value else 0


class _Geometry:
    """A depthwise convolution over two axes: x (N, C, H, W), w (C, 1, R, S), y (N, C, P, Q); None if this is another one."""

    @staticmethod
    def of(step, x: Buffer, w: Buffer, y: Buffer) -> _Geometry | None:
        ints = step.ints
        if (
            ints[0] != 2
            or any(type(d) is not int for d in ints)
            or hint(w.shape[1]) != 1
            or hint(w.shape[0]) != ints[9]
        ):
            return None
        shape = [_fixed(d) for d in w.shape]
        g = _Geometry()
        g.stride, g.pad, g.dilation, g.groups = ints[1:3], ints[3:5], ints[7:9], ints[9]
        g.kernel = shape[2:]
        g.channels = shape[0]
        taps = g.kernel[0] * g.kernel[1]
        if shape[1] != 1 or g.groups != g.channels or g.groups < 2 or taps > REGISTERS:
            return None
        if x.dtype.kind != "float" or x.strides[1] != 1 or y.strides[1] != 1:
            return None
        g.piece = 16 // x.dtype.itemsize
        outer = [s for b in (x, y) for a, s in enumerate(b.strides) if a != 1]
        while g.piece > 1 and (
            g.channels % g.piece or g.piece * taps > REGISTERS or any(s % g.piece != 0 for s in outer)
        ):  # symbolic strides leave guards
            g.piece //= 2
        vectors = -(-g.channels // g.piece)
        g.lanes, g.rows = shares(vectors)
        g.tiles = -(-vectors // g.lanes)
        g.taps = taps
        return g

    def wide(self, dtype) -> str:
        return "double" if dtype is dtypes.float64 else "float"


def _setup(t: Text, g: _Geometry, blocks) -> str:
    return f"""const i64 tile = udiv((i64)blockIdx.x, (i64){t.dim(blocks)}), chunk = blockIdx.x - tile * {t.dim(blocks)};
const int c0 = (int)(tile * {g.lanes} + threadIdx.x) * {g.piece};
const bool on = c0 < {g.channels};
"""


def _filters(t: Text, g: _Geometry, w: Buffer) -> str:
    wide = g.wide(w.dtype)
    at = t.at(w, ["(c0 + k)", "0", "r", "s"])
    return f"""{wide} f[{g.kernel[0]}][{g.kernel[1]}][{g.piece}];
if (on) for (int r = 0; r < {g.kernel[0]}; ++r) for (int s = 0; s < {g.kernel[1]}; ++s)
  for (int k = 0; k < {g.piece}; ++k) f[r][s][k] = {read(w.dtype, at)};
"""


def _pieces(t: Text, g: _Geometry, buffer: Buffer, names: list[str]) -> str:
    """Address of a thread's channels at a position."""
    return f"({t.pointer(buffer)} + {t.offset(buffer, [names[0], 'c0', *names[1:]])})"


def _gathers(step, x: Buffer, w: Buffer, y: Buffer, g: _Geometry, forward: bool) -> list:
    """Every position of the result adds up its taps."""
    source, target = (x, y) if forward else (y, x)
    t = Text(step.routine, step.node, (g.lanes, g.rows))
    count = product((target.shape[0], *target.shape[2:]))
    blocks = ceildiv(count, g.rows * POSITIONS)
    kind, wide = C_TYPE[x.dtype], g.wide(x.dtype)
    if forward:
        place = [f"const i64 {n} = {o} * {st} - {p} + {k} * {d};" for n, o, st, p, k, d in zip(
            "hv", "uz", g.stride, g.pad, "rs", g.dilation)]  # fmt: skip
        hit = ""
    else:
        place = [f"const i64 {n}0 = {o} + {p} - {k} * {d}, {n} = {n}0 / {st};" for n, o, st, p, k, d in zip(
            "hv", "uz", g.stride, g.pad, "rs", g.dilation)]  # fmt: skip
        hit = " || ".join(f"{n}0 < 0 || {n}0 % {st} != 0" for n, st in zip("hv", g.stride)) + " || "
    sizes = [t.dim(d) for d in source.shape[2:]]
    target_at = _pieces(t, g, target, ["n", "u", "z"])
    t.pointer(target, True)
    body = f"""{_setup(t, g, blocks)}{_filters(t, g, w)}
if (!on) return;
for (int step = 0; step < {POSITIONS}; ++step) {{
  const i64 i = (chunk * {POSITIONS} + step) * {g.rows} + threadIdx.y;
  if (i >= {t.dim(count)}) return;
  {t.digits("i", (target.shape[0], *target.shape[2:]), ["n", "u", "z"])}
  {wide} sum[{g.piece}] = {{}};
  #pragma unroll
  for (int r = 0; r < {g.kernel[0]}; ++r) {{
    {place[0]}
    #pragma unroll
    for (int s = 0; s < {g.kernel[1]}; ++s) {{
      {place[1]}
      if ({hit}h < 0 || h >= {sizes[0]} || v < 0 || v >= {sizes[1]}) continue;
      alignas(16) {kind} e[{g.piece}];
      load_any<{g.piece}>(e, {_pieces(t, g, source, ["n", "h", "v"])});
      for (int k = 0; k < {g.piece}; ++k) sum[k] += {read(x.dtype, "e[k]")} * f[r][s][k];
    }}
  }}
  alignas(16) {kind} out[{g.piece}];
  for (int k = 0; k < {g.piece}; ++k) out[k] = {write(x.dtype, "sum[k]")};
  store_any<{g.piece}>({target_at}, out);
}}"""
    return [t.step(body, blocks * g.tiles, HELPERS)]


def conv_forward(fusion, step) -> list | None:
    x, w = step.inputs[:2]
    g = _Geometry.of(step, x, w, step.outputs[0])
    if g is None:
        return None
    make = gathers if fits(g, True) else _gathers
    return make(step, x, w, step.outputs[0], g, True)


def conv_backward_data(fusion, step) -> list | None:
    y, w = step.inputs
    g = _Geometry.of(step, step.outputs[0], w, y)
    if g is None:
        return None
    make = gathers if fits(g, False) else _gathers
    return make(step, step.outputs[0], w, y, g, False)


def conv_backward_weight(fusion, step) -> list | None:
    x, y = step.inputs
    g = _Geometry.of(step, x, step.outputs[0], y)
    return None if g is None else sums(fusion, step, x, step.outputs[0], y, g)
