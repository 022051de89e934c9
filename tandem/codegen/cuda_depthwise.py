"""Depthwise convolutions on CUDA devices, one filter per channel: bound by memory, and served badly by general routines.

Threads along x own a few neighbouring channels, whose filters they keep in registers; threads along y run through positions.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.buffer import Buffer, allocate
from tandem.codegen.cuda_ops import C_TYPE
from tandem.codegen.cuda_text import Text, read, write
from tandem.graph.symbolic import ceildiv, hint, product

POSITIONS = 8  # that a thread runs through, one after the other
REGISTERS = 72  # for filters
PARTS = 512  # most blocks along positions that sum gradients of filters


def _fixed(d) -> int:
    """The size at hand; a symbolic one is fixed by a guard."""
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
        g.lanes = 32
        while g.lanes > 4 and g.lanes // 2 >= vectors:
            g.lanes //= 2
        g.rows = 256 // g.lanes
        g.tiles = -(-vectors // g.lanes)
        g.taps = taps
        return g

    def wide(self, dtype) -> str:
        return "double" if dtype is dtypes.float64 else "float"


# Views may start at odd elements.
_HELPERS = """\
template <int n, class T> DEVICE void load_any(T* to, const T* from) {
  if ((u64)from & (n * sizeof(T) - 1)) for (int k = 0; k < n; ++k) to[k] = from[k]; else load_all<n>(to, from);
}
template <int n, class T> DEVICE void store_any(T* to, const T* from) {
  if ((u64)to & (n * sizeof(T) - 1)) for (int k = 0; k < n; ++k) to[k] = from[k]; else store_all<n>(to, from);
}"""


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
    return [t.step(body, blocks * g.tiles, _HELPERS)]


def _sums(step, x: Buffer, w: Buffer, y: Buffer, g: _Geometry) -> list:
    """Gradients of filters: blocks add up runs of positions, a second kernel adds up the blocks, in order."""
    dtype = dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32
    wide, kind = g.wide(x.dtype), C_TYPE[x.dtype]
    count = product((y.shape[0], *y.shape[2:]))
    blocks = max(1, min(PARTS // g.tiles, -(-hint(count) // (g.rows * POSITIONS))))
    parts = allocate(dtype, (blocks, g.taps, g.channels))
    t = Text(step.routine, step.node, (g.lanes, g.rows))
    sizes = [t.dim(d) for d in x.shape[2:]]
    pp = t.pointer(parts, True)
    body = f"""{_setup(t, g, blocks)}
__shared__ {wide} shared[256];
{wide} sum[{g.kernel[0]}][{g.kernel[1]}][{g.piece}] = {{}};
if (on) for (i64 i = chunk * {g.rows} + threadIdx.y; i < {t.dim(count)}; i += {blocks * g.rows}) {{
  {t.digits("i", (y.shape[0], *y.shape[2:]), ["n", "u", "z"])}
  alignas(16) {kind} gradient[{g.piece}];
  load_any<{g.piece}>(gradient, {_pieces(t, g, y, ["n", "u", "z"])});
  #pragma unroll
  for (int r = 0; r < {g.kernel[0]}; ++r) {{
    const i64 h = u * {g.stride[0]} - {g.pad[0]} + r * {g.dilation[0]};
    #pragma unroll
    for (int s = 0; s < {g.kernel[1]}; ++s) {{
      const i64 v = z * {g.stride[1]} - {g.pad[1]} + s * {g.dilation[1]};
      if (h < 0 || h >= {sizes[0]} || v < 0 || v >= {sizes[1]}) continue;
      alignas(16) {kind} e[{g.piece}];
      load_any<{g.piece}>(e, {_pieces(t, g, x, ["n", "h", "v"])});
      for (int k = 0; k < {g.piece}; ++k) sum[r][s][k] += {read(x.dtype, "e[k]")} * {read(x.dtype, "gradient[k]")};
    }}
  }}
}}
#pragma unroll
for (int r = 0; r < {g.kernel[0]}; ++r)
#pragma unroll
for (int s = 0; s < {g.kernel[1]}; ++s)
#pragma unroll
for (int k = 0; k < {g.piece}; ++k) {{
  const {wide} total = over_team<Sum>(sum[r][s][k], shared);
  if (on && threadIdx.y == 0) {pp}[(chunk * {g.taps} + r * {g.kernel[1]} + s) * {g.channels} + c0 + k] = total;
}}"""
    first = t.step(body, blocks * g.tiles, _HELPERS)
    u = Text(step.routine, step.node)
    target = u.at(w, ["c", "0", "r", "s"], True)
    body = f"""const i64 tap = i / {g.channels}, c = i % {g.channels}, r = tap / {g.kernel[1]}, s = tap % {g.kernel[1]};
{wide} total = 0;
for (int b = 0; b < {blocks}; ++b) total += {u.pointer(parts)}[(b * {g.taps} + tap) * {g.channels} + c];
{target} = {write(w.dtype, "total")};"""
    return [first, u.flat(g.taps * g.channels, body)]


def conv_forward(fusion, step) -> list | None:
    x, w = step.inputs[:2]
    g = _Geometry.of(step, x, w, step.outputs[0])
    return None if g is None else _gathers(step, x, w, step.outputs[0], g, True)


def conv_backward_data(fusion, step) -> list | None:
    y, w = step.inputs
    g = _Geometry.of(step, step.outputs[0], w, y)
    return None if g is None else _gathers(step, step.outputs[0], w, y, g, False)


def conv_backward_weight(fusion, step) -> list | None:
    x, y = step.inputs
    g = _Geometry.of(step, x, step.outputs[0], y)
    return None if g is None else _sums(step, x, step.outputs[0], y, g)
