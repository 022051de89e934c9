"""Depthwise convolutions on CUDA devices by runs: a thread computes RUN neighbouring positions of a row for its channels, so that a
column it has read serves all windows that hold it.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.buffer import Buffer, allocate
from tandem.codegen.cuda.nests import shares
from tandem.codegen.cuda.ops import C_TYPE
from tandem.codegen.cuda.text import ANY, Text, read, write
from tandem.graph.symbolic import ceildiv, hint, product

RUN = 4

HELPERS = (
    ANY
    + """\
DEVICE float times_plus(float x, float y, float z) { return __fmaf_rn(x, y, z); }
DEVICE double times_plus(double x, double y, double z) { return __fma_rn(x, y, z); }
"""
)


def fits(g, forward: bool) -> bool:
    return g.dilation == (1, 1) and (forward or RUN % g.stride[1] == 0)


def _taps(g, forward: bool) -> tuple[int, list[tuple[int, int, int]]]:
    """(first, [(column, position, tap)]): which column, counted from `first` beside where the run begins, goes into which position
    of the run by which tap of a row of the filter."""
    pad, stride, taps = g.pad[1], g.stride[1], g.kernel[1]
    if forward:
        found = [(t * stride + s - pad, t, s) for t in range(RUN) for s in range(taps)]
    else:
        found = [
            ((t + pad - s) // stride, t, s) for t in range(RUN) for s in range(taps) if (t + pad - s) % stride == 0
        ]
    first = min(column for column, _, _ in found)
    return first, sorted((column - first, t, s) for column, t, s in found)


def _columns(kind: str, piece: int, count: int, start: str, width: str, row: str, step: str, name: str) -> str:
    """Reads `count` columns of a row, zeros where it has none."""
    return f"""alignas(16) {kind} {name}[{count}][{piece}];
#pragma unroll
for (int j = 0; j < {count}; ++j) {{
  const int v = {start} + j;
  if (v >= 0 && v < {width}) load_any<{piece}>({name}[j], {row} + (i64)v * {step});
  else for (int k = 0; k < {piece}; ++k) {name}[j][k] = zero_of<{kind}>();
}}"""


def gathers(step, x: Buffer, w: Buffer, y: Buffer, g, forward: bool) -> list:
    """Every position of the result adds up its taps."""
    source, target = (x, y) if forward else (y, x)
    t = Text(step.routine, step.node, (g.lanes, g.rows))
    kind, wide, piece = C_TYPE[x.dtype], g.wide(x.dtype), g.piece
    # a block's threads along y: a rectangle of runs, so that rows are read by neighbours as well
    up = 1
    while up * up < g.rows and up < 8:
        up *= 2
    across = g.rows // up
    height, width = (t.dim(d) for d in target.shape[2:])
    runs = ceildiv(target.shape[3], RUN * across)
    bands = ceildiv(target.shape[2], up)
    blocks = product((target.shape[0], bands, runs))
    first, taps = _taps(g, forward)
    count = 1 + max(column for column, _, _ in taps)
    stride = g.stride
    if forward:
        row = f"const int h = u * {stride[0]} - {g.pad[0]} + r;"
        start = f"z0 * {stride[1]} + ({first})"
        skip = ""
    else:
        row = f"const int h0 = u + {g.pad[0]} - r, h = h0 / {stride[0]};"
        start = f"z0 / {stride[1]} + ({first})"
        skip = f"h0 < 0 || h0 % {stride[0]} != 0 || "
    sizes = [t.dim(d) for d in source.shape[2:]]
    strides = [t.dim(d) for d in source.strides]
    span = g.lanes * piece
    at = t.at(w, ["c", "0", f"(e / {span} / {g.kernel[1]})", f"(e / {span} % {g.kernel[1]})"])
    by_column = []
    for c in range(count):
        lines = [f"for (int k = 0; k < {piece}; ++k) now[k] = {read(x.dtype, f'e[{c}][k]')};"]
        for column, p, s in taps:
            if column == c:
                lines.append(
                    f"for (int k = 0; k < {piece}; ++k) sum[{p}][k] = times_plus(now[k], f[{s}][k], sum[{p}][k]);"
                )
        by_column.append("\n".join(lines))
    adds = "\n".join(by_column)
    target_at = f"({t.pointer(target, True)} + {t.offset(target, ['n', 'c0', 'u', '(z0 + p)'])})"
    body = f"""__shared__ __align__(16) {wide} filters[{g.taps} * {span}];
const i64 tile = udiv((i64)blockIdx.x, (i64){t.dim(blocks)}), chunk = blockIdx.x - tile * {t.dim(blocks)};
for (int e = threadIdx.y * {g.lanes} + threadIdx.x; e < {g.taps * span}; e += {g.lanes * g.rows}) {{
  const i64 c = tile * {span} + e % {span};
  filters[e] = c < {g.channels} ? {read(w.dtype, at)} : 0;
}}
__syncthreads();
const int c0 = (int)tile * {span} + threadIdx.x * {piece};
{t.digits("chunk", (target.shape[0], bands, runs), ["n", "band", "run"])}
const int u = (int)band * {up} + threadIdx.y / {across}, z0 = ((int)run * {across} + threadIdx.y % {across}) * {RUN};
if (c0 >= {g.channels} || u >= {height} || z0 >= {width}) return;
{wide} sum[{RUN}][{piece}] = {{}};
#pragma unroll
for (int r = 0; r < {g.kernel[0]}; ++r) {{
  {row}
  if ({skip}h < 0 || h >= {sizes[0]}) continue;
  const {kind}* from = {t.pointer(source)} + n * {strides[0]} + (i64)h * {strides[2]} + c0;
  {_columns(kind, piece, count, start, sizes[1], "from", strides[3], "e")}
  {wide} f[{g.kernel[1]}][{piece}], now[{piece}];
  for (int s = 0; s < {g.kernel[1]}; ++s)
    load_all<{piece}>(f[s], filters + (r * {g.kernel[1]} + s) * {span} + threadIdx.x * {piece});
  {adds}
}}
#pragma unroll
for (int p = 0; p < {RUN}; ++p) if (z0 + p < {width}) {{
  alignas(16) {kind} out[{piece}];
  for (int k = 0; k < {piece}; ++k) out[k] = {write(x.dtype, "sum[p][k]")};
  store_any<{piece}>({target_at}, out);
}}"""
    return [t.step(body, blocks * g.tiles, HELPERS)]


def sums(fusion, step, x: Buffer, w: Buffer, y: Buffer, g) -> list:
    """Gradients of filters: blocks add up runs of positions, a second kernel adds up the blocks, both in a fixed order."""
    dtype = dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32
    wide, kind = g.wide(x.dtype), C_TYPE[x.dtype]
    piece = min(g.piece, 4)
    while piece > 1 and piece * g.taps > 40:
        piece //= 2
    vectors = -(-g.channels // piece)
    lanes, rows = shares(vectors)
    tiles = -(-vectors // lanes)
    runs = (y.shape[0], y.shape[2], ceildiv(y.shape[3], RUN))
    total = product(runs)
    blocks = max(1, min(fusion.target.costs.filter_blocks // tiles, -(-hint(total) // (rows * 2))))
    parts = allocate(dtype, (blocks, g.taps, g.channels))
    t = Text(step.routine, step.node, (lanes, rows))
    sizes = [t.dim(d) for d in x.shape[2:]]
    strides = [t.dim(d) for d in x.strides]
    ys = [t.dim(d) for d in y.strides]
    taps, dil = g.kernel, g.dilation
    count = (RUN - 1) * g.stride[1] + (taps[1] - 1) * dil[1] + 1
    lines = []
    for c in range(count):
        uses = [(p, s) for p in range(RUN) for s in range(taps[1]) if p * g.stride[1] + s * dil[1] == c]
        if uses:
            lines.append(f"for (int k = 0; k < {piece}; ++k) now[k] = {read(x.dtype, f'e[{c}][k]')};")
        for p, s in uses:
            lines.append(
                f"for (int k = 0; k < {piece}; ++k) sum[r][{s}][k] = times_plus(now[k], by[{p}][k], sum[r][{s}][k]);"
            )
    adds = "\n    ".join(lines)
    pp = t.pointer(parts, True)
    body = f"""const i64 tile = blockIdx.x / {blocks}, chunk = blockIdx.x - tile * {blocks};
const int c0 = ((int)tile * {lanes} + threadIdx.x) * {piece};
const bool on = c0 < {g.channels};
__shared__ {wide} shared[{lanes * rows * piece}];
{wide} sum[{taps[0]}][{taps[1]}][{piece}] = {{}};
if (on) for (i64 i = chunk * {rows} + threadIdx.y; i < {t.dim(total)}; i += {blocks * rows}) {{
  {t.digits("i", runs, ["n", "u", "run"])}
  const int z0 = (int)run * {RUN};
  const {kind}* gradient = {t.pointer(y)} + n * {ys[0]} + u * {ys[2]} + c0;
  {_columns(kind, piece, RUN, "z0", t.dim(y.shape[3]), "gradient", ys[3], "d")}
  {wide} by[{RUN}][{piece}];
  for (int p = 0; p < {RUN}; ++p) for (int k = 0; k < {piece}; ++k) by[p][k] = {read(x.dtype, "d[p][k]")};
  #pragma unroll
  for (int r = 0; r < {taps[0]}; ++r) {{
    const int h = (int)u * {g.stride[0]} - {g.pad[0]} + r * {dil[0]};
    if (h < 0 || h >= {sizes[0]}) continue;
    const {kind}* from = {t.pointer(x)} + n * {strides[0]} + (i64)h * {strides[2]} + c0;
    {_columns(kind, piece, count, f"z0 * {g.stride[1]} - {g.pad[1]}", sizes[1], "from", strides[3], "e")}
    {wide} now[{piece}];
    {adds}
  }}
}}
#pragma unroll
for (int r = 0; r < {taps[0]}; ++r)
#pragma unroll
for (int s = 0; s < {taps[1]}; ++s) {{
  over_team<Sum, {piece}>(sum[r][s], shared);
  if (on && threadIdx.y == 0)
    for (int k = 0; k < {piece}; ++k) {pp}[(chunk * {g.taps} + r * {taps[1]} + s) * {g.channels} + c0 + k] = sum[r][s][k];
}}"""
    first = t.step(body, blocks * tiles, HELPERS)
    u = Text(step.routine, step.node, (32, 16))
    target = u.at(w, ["c", "0", "r", "s"], True)
    body = f"""__shared__ {wide} shared[512];
const int i = blockIdx.x * 32 + threadIdx.x, tap = i / {g.channels}, c = i % {g.channels};
const int r = tap / {taps[1]}, s = tap % {taps[1]};
{wide} total = 0;
if (i < {g.taps * g.channels})
  #pragma unroll 4
  for (int b = threadIdx.y; b < {blocks}; b += 16) total += {u.pointer(parts)}[(i64)b * {g.taps * g.channels} + i];
total = over_team<Sum>(total, shared);
if (i < {g.taps * g.channels} && threadIdx.y == 0) {target} = {write(w.dtype, "total")};"""
    return [first, u.step(body, -(-g.taps * g.channels // 32), HELPERS)]
