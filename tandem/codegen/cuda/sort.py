"""Order on CUDA devices: a stable merge sort of lines, and scatter, which brings updates of one place together by sorting.

Note [Merge sort]
Keys become unsigned numbers in the wanted order. A block sorts a tile of TILE elements in shared memory; then runs are merged
pairwise: every element finds its place by looking up its rank in the other run. Positions break ties, so equal keys keep their
order and results do not depend on anything but the data.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.buffer import Buffer, allocate, root_of
from tandem.codegen.cuda.nests import copy
from tandem.codegen.cuda.ops import C_TYPE
from tandem.codegen.cuda.text import ANY, Text, count_of, names_of, read, wide_type, write
from tandem.errors import UnsupportedError
from tandem.graph.symbolic import Dim, ceildiv, hint, product

TILE = 1024
PACKED_TILE = 2048  # of numbers that are sorted alone
PACKED_THREADS = 1024

_KEY = """\
DEVICE u64 key_of(float x) { u32 b = x != x ? 0xffffffffu : __float_as_uint(x == 0 ? 0.0f : x);
  return x != x ? 0xffffffffull : (b >> 31 ? ~b : b | 0x80000000u); }
DEVICE u64 key_of(double x) { u64 b = (u64)__double_as_longlong(x == 0 ? 0.0 : x);
  return x != x ? ~0ull : (b >> 63 ? ~b : b | 0x8000000000000000ull); }
DEVICE u64 key_of(i64 x) { return (u64)x ^ 0x8000000000000000ull; }
DEVICE u64 key_of(u64 x) { return x; }
template <class T> DEVICE u64 key_of(T x) { return T(-1) < T(0) ? key_of((i64)x) : (u64)x; }
DEVICE u64 key_of(bool x) { return x; }
"""


def _tiles(node, lines: Dim, n: Dim, key: str, setup: str, t: Text, keys: Buffer, places: Buffer, helpers: str):
    """Sorts tiles of every line; `key` is C for the key of element `e` of line `line`, after `setup`."""
    tiles = ceildiv(n, TILE)
    length, count = t.dim(n), t.dim(tiles)
    to_keys, to_places = t.pointer(keys, True), t.pointer(places, True)
    body = f"""__shared__ u64 k[{TILE}]; __shared__ i32 q[{TILE}];
const i64 line = udiv((i64)blockIdx.x, (i64){count}), tile = blockIdx.x - line * {count}, base = tile * {TILE};
{setup}
int width = 1;  // of what there is, as a power of 2
while (width < {TILE} && width < {length} - base) width *= 2;
for (int j = threadIdx.x; j < width; j += 256) {{
  const i64 e = base + j;
  k[j] = e < {length} ? {key} : ~0ull;
  q[j] = e < {length} ? j : 0x40000000 + j;
}}
for (int size = 2; size <= width; size *= 2) for (int step = size / 2; step > 0; step /= 2) {{
  __syncthreads();
  for (int j = threadIdx.x; j < width; j += 256) {{
    const int o = j ^ step;
    if (o > j) {{
      const bool up = (j & size) == 0;
      const bool after = k[j] > k[o] || (k[j] == k[o] && q[j] > q[o]);
      if (after == up) {{ const u64 x = k[j]; k[j] = k[o]; k[o] = x; const i32 y = q[j]; q[j] = q[o]; q[o] = y; }}
    }}
  }}
}}
__syncthreads();
for (int j = threadIdx.x; j < width; j += 256) if (base + j < {length}) {{
  {to_keys}[line * {length} + base + j] = k[j];
  {to_places}[line * {length} + base + j] = base + q[j];
}}"""
    return t.step(body, lines * tiles, helpers)


def _merge(node, lines: Dim, n: Dim, width: int, source: tuple, target: tuple):
    t = Text("sort_merge", node)
    keys, places = (t.pointer(b) for b in source)
    to_keys, to_places = (t.pointer(b, True) for b in target)
    length = t.dim(n)
    body = f"""const i64 line = udiv(i, (i64){length}), e = i - line * {length}, start = line * {length};
const i64 pair = e / {2 * width} * {2 * width}, middle = pair + {width};
const i64 end = pair + {2 * width} < {length} ? pair + {2 * width} : {length};
const bool left = e < middle;
const u64 key = {keys}[i];
i64 place = e;
if (middle < end) {{
  i64 low = left ? middle : pair, high = left ? end : middle;
  const i64 first = low;
  while (low < high) {{
    const i64 m = (low + high) / 2;
    const u64 other = {keys}[start + m];
    if (left ? other < key : other <= key) low = m + 1; else high = m;
  }}
  place = left ? e + (low - first) : pair + (e - middle) + (low - first);
}}
{to_keys}[start + place] = key;
{to_places}[start + place] = {places}[i];"""
    return t.flat(lines * n, body)


def sorted_places(
    node, lines: Dim, n: Dim, t: Text, key: str, setup: str, helpers: str = ""
) -> tuple[list, Buffer, Buffer]:
    """(steps, keys, positions): each of `lines` lines of n elements in order."""
    make = lambda dtype: allocate(dtype, (lines, n))
    now = make(dtypes.uint64), make(dtypes.int64)
    steps = [_tiles(node, lines, n, key, setup, t, *now, _KEY + helpers)]
    width = TILE
    while n > width:  # a symbolic size leaves a guard
        after = make(dtypes.uint64), make(dtypes.int64)
        steps.append(_merge(node, lines, n, width, now, after))
        now = after
        width *= 2
    return steps, *now


def _ordered(fusion, step, axis: int, descending: bool, count: Dim) -> list:
    x = step.inputs[0]
    values, places = step.outputs
    node = step.node
    if not x.shape:
        t = Text("sort", node)
        return [copy(fusion, x, values, node), t.flat(1, f"{t.at(places, [], True)} = 0;")]
    n = x.shape[axis]
    outer = [d for a, d in enumerate(x.shape) if a != axis]
    lines = product(outer)
    t = Text("sort_tiles", node)
    names = names_of("d", len(outer))
    index = [*names[:axis], "e", *names[axis:]]
    wide = wide_type(x.dtype)
    key = f"key_of(({wide}){read(x.dtype, t.at(x, index))})"
    if descending:  # NaN is greater than everything
        key = f"~{key}"
    setup = t.digits("line", outer, names) if outer else ""
    steps, _, order = sorted_places(node, lines, n, t, key, setup)
    g = Text("sort_take", node)
    rows = names_of("d", len(outer))
    at = [*rows[:axis], "j", *rows[axis:]]
    body = f"""const i64 line = udiv(i, (i64){g.dim(count)}), j = i - line * {g.dim(count)};
{g.digits("line", outer, rows) if outer else ""}
const i64 from = {g.pointer(order)}[line * {g.dim(n)} + j];
{g.at(places, at, True)} = from;
{g.at(values, at, True)} = {g.at(x, [*rows[:axis], "from", *rows[axis:]])};"""
    return [*steps, g.flat(lines * count, body)]


def sort(fusion, step) -> list:
    axis, descending, _ = step.ints
    return _ordered(fusion, step, axis, bool(descending), step.inputs[0].shape[axis] if step.inputs[0].shape else 1)


def topk(fusion, step) -> list:
    axis, k, largest, _ = step.ints
    return _ordered(fusion, step, axis, bool(largest), k)


# -- scatter

_APPLY = {
    1: "s[q] = s[q] + v;", 2: "s[q] = larger(s[q], v);", 3: "s[q] = smaller(s[q], v);", 4: "s[q] = s[q] * v;",
}  # fmt: skip


def _sorted_rows(fusion, node, out: Buffer, indices: list[Buffer]) -> tuple[list, Buffer]:
    """(steps, sorted): the updates by the row they go to, those of one row in their order, as row << 32 | number of the update.

    Rows out of range are the last. Tensors indexed by the same numbers share the work.
    """
    k = len(indices)
    known = fusion.__dict__.setdefault("sorted_rows", {})
    signature = (tuple(map(id, indices)), tuple(out.shape[:k]))
    found = known.get(signature)
    if found is not None and all(x is y for x, y in zip(found[0], indices)):
        return [], found[1]
    shape = indices[0].shape
    n = product(shape)
    if max(hint(n), hint(product(out.shape[:k]))) >= 2**32 - 1:
        raise UnsupportedError(node.op.name, "more than 2**32 rows or updates cannot be scattered on CUDA devices")
    t = Text("scatter_sort", node, (PACKED_THREADS, 1))
    names = names_of("d", len(shape))
    row, inside = "0", "true"
    for axis, index in enumerate(indices):
        value, size = f"(i64){t.at(index, names)}", t.dim(out.shape[axis])
        row = f"({row}) * {size} + wrapped({value}, {size})"
        inside += f" && ok({value}, {size})"
    digits = t.digits("e", shape, names) if names else ""
    now = allocate(dtypes.uint64, (n,))
    length, to = t.dim(n), t.pointer(now, True)
    body = f"""__shared__ u64 k[{PACKED_TILE}];
const i64 base = (i64)blockIdx.x * {PACKED_TILE};
const auto packed = [&](i64 e) -> u64 {{
  if (e >= {length}) return ~0ull;
  {digits}
  return (({inside}) ? (u64)({row}) << 32 : 0xffffffffull << 32) | (u64)e;
}};
int tile = 1;  // all that there is, as a power of 2
while (tile < {PACKED_TILE} && tile < {length} - base) tile *= 2;
for (int j = threadIdx.x; j < tile; j += {PACKED_THREADS}) k[j] = packed(base + j);
for (int size = 2; size <= tile; size *= 2) for (int step = size / 2; step > 0; step /= 2) {{
  __syncthreads();
  for (int pair = threadIdx.x; pair < tile / 2; pair += {PACKED_THREADS}) {{
    const int j = (pair & ~(step - 1)) * 2 + (pair & (step - 1)), o = j + step;
    const u64 x = k[j], y = k[o];
    if ((x > y) == ((j & size) == 0)) {{ k[j] = y; k[o] = x; }}
  }}
}}
__syncthreads();
for (int j = threadIdx.x; j < tile; j += {PACKED_THREADS}) if (base + j < {length}) {to}[base + j] = k[j];"""
    steps = [t.step(body, ceildiv(n, PACKED_TILE), _WRAP)]
    width = PACKED_TILE
    while n > width:  # a symbolic size leaves a guard
        after = allocate(dtypes.uint64, (n,))
        steps.append(_merge_packed(node, n, width, now, after))
        now = after
        width *= 2
    known[signature] = (indices, now)
    return steps, now


def _merge_packed(node, n: Dim, width: int, source: Buffer, target: Buffer):
    """Pairs of sorted runs become one: no two numbers are equal, so an element's place is its rank in both."""
    t = Text("sort_merge", node)
    keys, to = t.pointer(source), t.pointer(target, True)
    length = t.dim(n)
    body = f"""const i64 pair = i / {2 * width} * {2 * width}, middle = pair + {width};
const i64 end = pair + {2 * width} < {length} ? pair + {2 * width} : {length};
const u64 key = {keys}[i];
i64 place = i;
if (middle < end) {{
  const bool left = i < middle;
  i64 low = left ? middle : pair, high = left ? end : middle;
  const i64 first = low;
  while (low < high) {{
    const i64 m = (low + high) >> 1;
    if ({keys}[m] < key) low = m + 1; else high = m;
  }}
  place = left ? i + (low - first) : pair + (i - middle) + (low - first);
}}
{to}[place] = key;"""
    return t.flat(n, body)


_WRAP = """
DEVICE i64 wrapped(i64 v, i64 n) { return v < 0 ? v + n : v; }
DEVICE bool ok(i64 v, i64 n) { return v >= -n && v < n; }
"""


def scatter(fusion, step) -> list:
    """Updates sorted by the row they go to; the first of each row applies them all, in their order."""
    base, updates, *indices = step.inputs
    out = step.outputs[0]
    k, mode = step.ints
    node = step.node
    steps = [] if root_of(base) is root_of(out) else [copy(fusion, base, out, node)]
    index_shape = indices[0].shape
    n = product(index_shape)
    rest = out.shape[k:]
    more, order = _sorted_rows(fusion, node, out, indices)
    g = Text("scatter", node)
    piece = _row_piece(out, updates, len(rest))
    width = product((*rest[:-1], rest[-1] // piece)) if piece > 1 else product(rest)
    wide = wide_type(out.dtype)
    if wide not in ("float", "double", "bool") and mode in (1, 4):
        wide = "u64" if out.dtype.itemsize == 8 else "u32"
    heads, tails, inner = names_of("h", k), names_of("r", len(rest)), names_of("u", len(index_shape))
    keys = g.pointer(order)
    target = f"({g.pointer(out, True)} + {g.offset(out, [*heads, *tails])})"
    source = f"({g.pointer(updates)} + {g.offset(updates, [*inner, *tails])})"
    kind = C_TYPE[out.dtype]
    value = f"({wide}){read(out.dtype, 'e[q]')}"
    apply = f"s[q] = {value};" if mode == 0 else f"const {wide} v = {value}; {_APPLY[mode]}"
    if out.dtype is dtypes.bool_ and mode:
        apply = f"const bool v = {value}; s[q] = s[q] {'|' if mode in (1, 2) else '&'} v;"
    tail_shape = [*rest[:-1], rest[-1] // piece] if piece > 1 else rest
    split = g.digits("c", tail_shape, tails) if rest else ""
    if piece > 1:
        last = tails[-1]
        split = split.replace(f"{last} =", f"{last}p =") + f" const i64 {last} = {last}p * {piece};"
    body = f"""const i64 p = udiv(i, (i64){g.dim(width)}), c = i - p * {g.dim(width)};
const u64 key = {keys}[p];
const u32 row = (u32)(key >> 32);
if (row == 0xffffffffu || (p > 0 && (u32)({keys}[p - 1] >> 32) == row)) return;
{g.digits("(i64)row", out.shape[:k], heads)}
{split}
alignas(16) {kind} e[{piece}]; {wide} s[{piece}];
load_any<{piece}>(e, {target});
for (int q = 0; q < {piece}; ++q) s[q] = {value};
u64 now = key;
for (i64 m = p;;) {{
  const i64 number = (i64)(u32)now;
  {g.digits("number", index_shape, inner) if inner else ""}
  load_any<{piece}>(e, {source});
  for (int q = 0; q < {piece}; ++q) {{ {apply} }}
  if (++m >= {g.dim(n)}) break;
  now = {keys}[m];
  if ((u32)(now >> 32) != row) break;
}}
for (int q = 0; q < {piece}; ++q) e[q] = {write(out.dtype, "s[q]")};
store_any<{piece}>({target}, e);"""
    return [*steps, *more, g.flat(n * width, body, ANY)]


def _row_piece(out: Buffer, updates: Buffer, axes: int) -> int:
    """Neighbouring elements of a row that one thread applies."""
    if not axes or type(out.shape[-1]) is not int or out.strides[-1] != 1 or updates.strides[-1] != 1:
        return 1
    piece = max(16 // out.dtype.itemsize, 1)
    outer = [*out.strides[:-1], *updates.strides[:-1]]
    while piece > 1 and (out.shape[-1] % piece or any(hint(s) % piece for s in outer)):
        piece //= 2
    return piece


__all__ = ["C_TYPE", "count_of", "scatter", "sort", "topk"]
