"""Attention as C loops: one row of scores at a time."""

from __future__ import annotations

from tandem.codegen.c.ops import TYPE
from tandem.export.c99.call import Call
from tandem.export.c99.text import offset


def attention(call: Call):
    """q (B, H, T, D), k (B, H, S, D), v (B, H, S, E)[, mask (B, H, T, S)] -> out (B, H, T, E), log of row sums (B, H, T)"""
    t, op = call.text, call.op
    q, k, v, *mask = call.inputs
    out, sums = call.outputs
    accumulator = t.accumulator(q.dtype)
    kind, suffix = TYPE[accumulator], "" if accumulator.itemsize == 8 else "f"
    keys, width = k.shape[2], v.shape[3]
    call.scratch = (accumulator, keys)
    with t.loops(["b", "h", "t"], q.shape[:3]) as (b, h, row), t.block(""):

        def at(x, *last) -> str:
            return f"{x.name}[{offset(*zip((b, h, *last), x.strides, strict=True))}]"

        limit = str(keys)
        if op.causal:  # a row sees keys up to its own
            limit = f"({row} + 1 < {keys} ? {row} + 1 : {keys})"
        t.line(f"const int keys = {limit};")
        t.line(f"{kind} best = -INFINITY, total = 0;")
        with t.block("for (int s = 0; s < keys; ++s)"):
            t.line(f"{kind} score = 0;")
            x, y = t.load(q.dtype, at(q, row, "d")), t.load(k.dtype, at(k, "s", "d"))
            t.line(f"for (int d = 0; d < {q.shape[3]}; ++d) score += {x} * {y};")
            t.line(f"score *= {float(call.floats[0])!r}{suffix};")
            if mask and mask[0].dtype.kind == "bool":
                t.line(f"if (!{at(mask[0], row, 's')}) score = -INFINITY;")
            elif mask:
                t.line(f"score += {t.load(mask[0].dtype, at(mask[0], row, 's'))};")
            t.line("if (score > best || score != score) best = score;")
            t.line("scratch[s] = score;")
        with t.block("for (int s = 0; s < keys; ++s)"):
            t.line(f"scratch[s] = best == -INFINITY ? 0 : exp{suffix}(scratch[s] - best);")
            t.line("total += scratch[s];")
        if sums is not None:
            t.line(f"{at(sums, row)} = total > 0 || total != total ? best + log{suffix}(total) : -INFINITY;")
        if out is None:
            return
        t.line(f"{kind} sum[{width}] = {{0}};")
        with t.block("for (int s = 0; s < keys; ++s)"):
            t.line(f"for (int e = 0; e < {width}; ++e) sum[e] += scratch[s] * {t.load(v.dtype, at(v, 's', 'e'))};")
        result = t.narrow(out.dtype, "(total == 0 ? 0 : sum[e] / total)")
        t.line(f"for (int e = 0; e < {width}; ++e) {at(out, row, 'e')} = {result};")
