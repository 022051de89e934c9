"""Maxima over windows inside programs on CUDA devices: backward is told by a byte which element of a window was the largest.

Eager calls ask for bytes where nobody asks for positions (Note [Taps] in ops/pool.py). Where a program uses positions for nothing
but the gradient, PoolMax and MaxBackward become PoolMaxTaps and MaxTapsBackward here. Two identities save more:

    where(0 < r, backward(g), 0) = backward(where(0 < y, g, 0))    for y the maxima of r, as r is y at the places that g goes to
    sum(backward(g)) = sum(g)                                      over whole images, for windows that do not overlap
"""

from __future__ import annotations

import functools

from tandem.codegen.cuda.ops import C_TYPE
from tandem.codegen.cuda.text import ANY, Text, names_of, read, wide_type, write
from tandem.graph.ir import Node, Value
from tandem.graph.symbolic import ceildiv, hint, product
from tandem.ops.arithmetic import Cast
from tandem.ops.comparison import Less, Where
from tandem.ops.create import Constant
from tandem.ops.pool import MaxBackward, MaxTapsBackward, PoolMax, PoolMaxTaps
from tandem.ops.reduce import Reduce
from tandem.ops.unary import Relu

# -- where they stand for others


def taps(lowering) -> dict[Node, object]:
    """The nodes that are written differently, with a formula for each."""
    graph, saved = lowering.graph, lowering.saved
    pools = [node for node in graph.nodes if isinstance(node.op, (PoolMax, PoolMaxTaps))]
    if not pools:
        return {}
    users: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for v in node.inputs:
            users.setdefault(v, []).append(node)
    held = {*graph.outputs, *saved, *(v for _, v in graph.mutations)}
    found: dict[Node, object] = {}
    for pool in pools:
        places = pool.outputs[1]
        backward = users.get(places, [])
        if isinstance(pool.op, PoolMax):
            kernel = pool.op.kernel
            if product(kernel) > 256 or places in held or not all(_goes_back(node, pool, places) for node in backward):
                continue
            found[pool] = _forward
            found.update(dict.fromkeys(backward, _backward))
        for node in backward:
            if _goes_back(node, pool, places):
                _beyond(pool, node, users, held, found)
    return found


def _goes_back(node: Node, pool: Node, places: Value) -> bool:
    kind = MaxBackward if isinstance(pool.op, PoolMax) else MaxTapsBackward
    return isinstance(node.op, kind) and node.op.windows == pool.op.windows and node.inputs[0] is not places


def _beyond(pool: Node, node: Node, users, held, found):
    """What follows the gradient of a pool."""
    value = node.outputs[0]
    following = users.get(value, [])
    if len(following) == 1 and value not in held and _masks(following[0], value, pool.inputs[0]):
        found[following[0]] = _masked
        value = following[0].outputs[0]
        following = users.get(value, [])
    kernel, stride, _, dilation = pool.op.windows
    if any(s < k or d != 1 for k, s, d in zip(kernel, stride, dilation)):
        return
    for user in following:
        if isinstance(user.op, Cast):
            following = following + users.get(user.outputs[0], [])
    spatial = set(range(2, len(value.type.shape)))
    for user in following:
        if isinstance(user.op, Reduce) and user.op.kind == "sum" and spatial <= set(user.op.axes):
            found[user] = _sum


def _masks(node: Node, value: Value, r: Value) -> bool:
    """Whether node is where(0 < r, value, 0), for r the result of a ReLU."""
    if not isinstance(node.op, Where) or node.inputs[1] is not value or not isinstance(r.op, Relu):
        return False
    mask, _, other = node.inputs
    if not isinstance(mask.op, Less) or mask.node.inputs[1] is not r:
        return False
    zeros = (other, mask.node.inputs[0])
    return all(isinstance(v.op, Constant) and v.op.value == 0 for v in zeros)


def _forward(op: PoolMax, x: Value):
    return PoolMaxTaps(op.windows, op.size)(x)


def _backward(op: MaxBackward, g: Value, taps: Value):
    return MaxTapsBackward(op.size, op.windows)(g, taps)


def _masked(op: Where, mask: Value, value: Value, zero: Value):
    back = value.node
    g, chosen = back.inputs
    largest = chosen.node.outputs[0]
    positive = Less()(Constant(0, largest.dtype)(), largest)
    return back.op(Where()(positive, g, Constant(0, g.dtype)()), chosen)


def _sum(op: Reduce, x: Value):
    casts = []
    while isinstance(x.op, Cast):
        casts.append(x.op)
        x = x.node.inputs[0]
    g = x.node.inputs[0]
    return op(functools.reduce(lambda v, cast: cast(v), reversed(casts), g))


# -- kernels


def pieces(buffers) -> int:
    """How many neighbouring channels a thread takes."""
    channels = buffers[0].shape[1]
    if not all(b.strides[1] == 1 for b in buffers):
        return 1
    piece = 16 // max(b.dtype.itemsize for b in buffers)
    outer = [channels, *[s for b in buffers for a, s in enumerate(b.strides) if a != 1]]
    while piece > 1 and any(hint(d) % piece for d in outer):
        piece //= 2
    return piece if all(d % piece == 0 for d in outer) else 1  # symbolic ones leave guards


def positions(t: Text, buffer, piece: int, names: list[str], shape=None) -> tuple[str, object]:
    """(statements that find the indices of piece i, in the order of memory; how many pieces there are). shape: the buffer's own, or
    that of something else that is walked in the same order."""
    order = buffer.order if buffer.order is not None else tuple(range(len(buffer.shape)))
    shape = [d // piece if a == 1 and piece > 1 else d for a, d in enumerate(shape or buffer.shape)]
    text = t.digits("i", [shape[a] for a in order], [names[a] for a in order])
    if piece > 1:
        text = text.replace(f"{names[1]} =", f"{names[1]}p =") + f" const i64 {names[1]} = {names[1]}p * {piece};"
    return text, product(shape)


def address(t: Text, buffer, names: list[str], writes: bool = False) -> str:
    return f"({t.pointer(buffer, writes)} + {t.offset(buffer, names)})"


AT_ONCE = 9  # elements of a window that are asked for before any is looked at: more would need too many registers


def pool_max_taps(fusion, step) -> list:
    x, (out, chosen) = step.inputs[0], step.outputs
    kernel, stride, padding, dilation = step.node.op.windows
    s = len(kernel)
    piece = pieces([x, out])
    t = Text(step.routine, step.node)
    o = names_of("o", 2 + s)
    setup, count = positions(t, out, piece, o)
    kind, wide = C_TYPE[x.dtype], wide_type(x.dtype)
    loops, tap, inside = "", "0", "true"
    for k in range(s):
        loops += f"""#pragma unroll
for (int w{k} = 0; w{k} < {kernel[k]}; ++w{k}) {{
const i64 x{k} = o{2 + k} * {stride[k]} - {padding[k]} + w{k} * {dilation[k]};
"""
        inside += f" && x{k} >= 0 && x{k} < {t.dim(x.shape[2 + k])}"
        tap = f"({tap}) * {kernel[k]} + w{k}"
    load = f"load_any<{piece}>(e[at], {address(t, x, [*o[:2], *names_of('x', s)])});"
    compare = f"""for (int k = 0; k < {piece}; ++k) {{
  const {wide} v = {read(x.dtype, "e[at][k]")};
  if (none || v > best[k] || v != v) {{ best[k] = v; tap[k] = (u8)({tap}); }}
}}
none = false;
"""
    if product(kernel) <= AT_ONCE:
        rooms, at = product(kernel), tap
        body = f"{loops}const int at = {at};\nif ({inside}) {load}\n{'}' * s}\n"
        body += f"{loops}const int at = {at};\nif ({inside}) {{ {compare} }}\n{'}' * s}"
    else:
        rooms = 1
        body = f"{loops}const int at = 0;\nif (!({inside})) continue;\n{load}\n{compare}{'}' * s}"
    body = f"""{setup}
{wide} best[{piece}]; alignas(16) u8 tap[{piece}]; bool none = true;
for (int k = 0; k < {piece}; ++k) {{ best[k] = 0; tap[k] = 0; }}
alignas(16) {kind} e[{rooms}][{piece}];
{body}
alignas(16) {kind} y[{piece}];
for (int k = 0; k < {piece}; ++k) y[k] = {write(x.dtype, "best[k]")};
store_any<{piece}>({address(t, out, o, True)}, y);
store_any<{piece}>({address(t, chosen, o, True)}, tap);"""
    return [t.flat(count, body, ANY)]


def pool_max_taps_backward(fusion, step) -> list:
    kernel, stride, _, dilation = step.node.op.windows
    if all(k <= s and d == 1 for k, s, d in zip(kernel, stride, dilation)):
        return _back_by_cells(step)
    g, chosen = step.inputs
    out = step.outputs[0]
    kernel, stride, padding, dilation = step.node.op.windows
    s = len(kernel)
    piece = pieces([g, chosen, out])
    t = Text(step.routine, step.node)
    x = names_of("x", 2 + s)
    setup, count = positions(t, out, piece, x)
    kind, wide = C_TYPE[g.dtype], wide_type(g.dtype)
    loops, tap = "", "0"
    for k in range(s):
        # windows that hold x begin at most `reach` before it
        reach = dilation[k] * (kernel[k] - 1)
        loops += f"""const i64 last{k} = x{2 + k} + {padding[k]};
#pragma unroll
for (int m{k} = 0; m{k} < {reach // stride[k] + 1}; ++m{k}) {{
const i64 o{k} = last{k} / {stride[k]} - m{k}, d{k} = last{k} - o{k} * {stride[k]}, w{k} = d{k} / {dilation[k]};
if (o{k} < 0 || o{k} >= {t.dim(g.shape[2 + k])} || d{k} > {reach} || d{k} != w{k} * {dilation[k]}) continue;
"""
        tap = f"({tap}) * {kernel[k]} + w{k}"
    at = [*x[:2], *names_of("o", s)]
    body = f"""{setup}
{wide} sum[{piece}];
for (int k = 0; k < {piece}; ++k) sum[k] = 0;
{loops}
const u8 tap = (u8)({tap});
alignas(16) {kind} e[{piece}]; alignas(16) u8 q[{piece}];
load_any<{piece}>(e, {address(t, g, at)});
load_any<{piece}>(q, {address(t, chosen, at)});
for (int k = 0; k < {piece}; ++k) if (q[k] == tap) sum[k] += {read(g.dtype, "e[k]")};
{"}" * s}
alignas(16) {kind} y[{piece}];
for (int k = 0; k < {piece}; ++k) y[k] = {write(g.dtype, "sum[k]")};
store_any<{piece}>({address(t, out, x, True)}, y);"""
    return [t.flat(count, body, ANY)]


def _back_by_cells(step) -> list:
    """Windows that do not overlap: a thread takes one, with the elements up to the next, and writes each of them once."""
    g, chosen = step.inputs
    out = step.outputs[0]
    kernel, stride, padding, _ = step.node.op.windows
    s = len(kernel)
    piece = pieces([g, chosen, out])
    t = Text(step.routine, step.node)
    o = names_of("o", 2 + s)
    cells = [*out.shape[:2], *(ceildiv(n + p, k) for n, p, k in zip(out.shape[2:], padding, stride))]
    setup, count = positions(t, out, piece, o, cells)
    kind, zero = C_TYPE[g.dtype], write(g.dtype, f"({wide_type(g.dtype)})0")
    inside = " && ".join(f"o{2 + k} < {t.dim(g.shape[2 + k])}" for k in range(s))
    loops, tap, taken = "", "0", "true"
    for k in range(s):
        loops += f"""#pragma unroll
for (int w{k} = 0; w{k} < {stride[k]}; ++w{k}) {{
const i64 x{k} = o{2 + k} * {stride[k]} - {padding[k]} + w{k};
if (x{k} < 0 || x{k} >= {t.dim(out.shape[2 + k])}) continue;
"""
        tap = f"({tap}) * {kernel[k]} + w{k}"
        if stride[k] > kernel[k]:
            taken += f" && w{k} < {kernel[k]}"
    body = f"""{setup}
alignas(16) {kind} e[{piece}]; alignas(16) u8 q[{piece}];
const bool window = {inside};
if (window) {{
load_any<{piece}>(e, {address(t, g, o)});
load_any<{piece}>(q, {address(t, chosen, o)});
}}
{loops}
const u8 tap = (u8)({tap}); const bool taken = window && {taken}; const {kind} zero = {zero};
alignas(16) {kind} y[{piece}];
for (int k = 0; k < {piece}; ++k) y[k] = taken && q[k] == tap ? e[k] : zero;
store_any<{piece}>({address(t, out, [*o[:2], *names_of("x", s)], True)}, y);
{"}" * s}"""
    return [t.flat(count, body, ANY)]
