"""Pooling on CUDA devices: one thread per result, which gathers what it needs, so that sums have a fixed order."""

from __future__ import annotations

from tandem.codegen.cuda.ops import C_TYPE
from tandem.codegen.cuda.pool_taps import address, pieces, positions
from tandem.codegen.cuda.text import ANY, Text, count_of, names_of, read, wide_type, write


def _attributes(step) -> tuple:
    """(spatial axes, kernel, stride, padding, dilation) as numbers."""
    ints = step.ints
    s = ints[0]
    part = lambda k: ints[1 + k * s : 1 + (k + 1) * s]
    return s, part(0), part(1), part(2), part(4)


def _loops(spatial: int, head, inside: str) -> str:
    return "".join(head(k) for k in range(spatial)) + inside + "}" * spatial


def pool_max(fusion, step) -> list:
    s, kernel, stride, padding, dilation = _attributes(step)
    return _maxima(step, s, lambda t, x, k: (
        f"o{2 + k} * {stride[k]} - {padding[k]} + w{k} * {dilation[k]}", f"{kernel[k]}"
    ))  # fmt: skip


def pool_adaptive_max(fusion, step) -> list:
    s = step.ints[0]

    def window(t, x, k):
        n, m = t.dim(x.shape[2 + k]), t.dim(step.outputs[0].shape[2 + k])
        first = f"udiv(o{2 + k} * {n}, (i64){m})"
        last = f"udiv((o{2 + k} + 1) * {n} + {m} - 1, (i64){m})"
        return f"{first} + w{k}", f"({last} - {first})"

    return _maxima(step, s, window)


def _maxima(step, s: int, window) -> list:
    """Threads take a few neighbouring channels, where these lie side by side."""
    x, (out, places) = step.inputs[0], step.outputs
    piece = pieces([x, out]) if places.strides[1] == 1 else 1
    t = Text(step.routine, step.node)
    o = names_of("o", 2 + s)
    at = [*o[:2], *names_of("x", s)]
    wide = wide_type(x.dtype)

    def head(k):
        position, count = window(t, x, k)
        n = t.dim(x.shape[2 + k])
        return (
            f"for (i64 w{k} = 0; w{k} < {count}; ++w{k}) {{ const i64 x{k} = {position};"
            f" if (x{k} < 0 || x{k} >= {n}) continue;\n"
        )

    flat = "x0"
    for k in range(1, s):
        flat = f"({flat}) * {t.dim(x.shape[2 + k])} + x{k}"
    setup, count = positions(t, out, piece, o)
    kind = C_TYPE[x.dtype]
    inside = f"""alignas(16) {kind} e[{piece}];
load_any<{piece}>(e, {address(t, x, at)});
const i64 flat = {flat};
for (int k = 0; k < {piece}; ++k) {{
  const {wide} v = {read(x.dtype, "e[k]")};
  if (place[k] < 0 || v > best[k] || v != v) {{ best[k] = v; place[k] = flat; }}
}}
"""
    body = f"""{setup}
{wide} best[{piece}]; alignas(16) i64 place[{piece}];
for (int k = 0; k < {piece}; ++k) {{ best[k] = 0; place[k] = -1; }}
{_loops(s, head, inside)}
alignas(16) {kind} y[{piece}];
for (int k = 0; k < {piece}; ++k) {{ y[k] = {write(out.dtype, "best[k]")}; place[k] = place[k] < 0 ? 0 : place[k]; }}
store_any<{piece}>({address(t, out, o, True)}, y);
store_any<{piece}>({address(t, places, o, True)}, place);"""
    return [t.flat(count, body, ANY)]


def _order_digits(t: Text, buffer, names: list[str]) -> str:
    """Indices of element i in the order in which the buffer lies in memory, so that threads side by side write side by side."""
    order = buffer.order if buffer.order is not None else tuple(range(len(buffer.shape)))
    return t.digits("i", [buffer.shape[a] for a in order], [names[a] for a in order])


def pool_max_backward(fusion, step) -> list:
    g, places = step.inputs
    out = step.outputs[0]
    s = len(out.shape) - 2
    windows = getattr(step.node.op, "windows", ())
    piece = pieces([g, out]) if places.strides[1] == 1 else 1
    t = Text(step.routine, step.node)
    x = names_of("x", 2 + s)
    at = [*x[:2], *names_of("o", s)]
    wide = wide_type(g.dtype)
    flat = "x2"
    for k in range(1, s):
        flat = f"({flat}) * {t.dim(out.shape[2 + k])} + x{2 + k}"

    def head(k):
        n = t.dim(g.shape[2 + k])
        if not windows:  # any result may have been taken from here
            return f"for (i64 o{k} = 0; o{k} < {n}; ++o{k}) {{\n"
        kernel, stride, padding, dilation = (w[k] for w in windows)
        reach = dilation * (kernel - 1)
        return (
            f"i64 first{k} = x{2 + k} + {padding} - {reach}; first{k} = first{k} <= 0 ? 0 : (first{k} + {stride - 1}) / {stride};\n"
            f"i64 last{k} = (x{2 + k} + {padding}) / {stride}; if (last{k} > {n} - 1) last{k} = {n} - 1;\n"
            f"for (i64 o{k} = first{k}; o{k} <= last{k}; ++o{k}) {{\n"
        )

    setup, count = positions(t, out, piece, x)
    kind = C_TYPE[g.dtype]
    inside = f"""alignas(16) {kind} e[{piece}]; alignas(16) i64 q[{piece}];
load_any<{piece}>(e, {address(t, g, at)});
load_any<{piece}>(q, {address(t, places, at)});
for (int k = 0; k < {piece}; ++k) if (q[k] == place) sum[k] += {read(g.dtype, "e[k]")};
"""
    body = f"""{setup}
const i64 place = {flat};
{wide} sum[{piece}];
for (int k = 0; k < {piece}; ++k) sum[k] = 0;
{_loops(s, head, inside)}
alignas(16) {kind} y[{piece}];
for (int k = 0; k < {piece}; ++k) y[k] = {write(out.dtype, "sum[k]")};
store_any<{piece}>({address(t, out, x, True)}, y);"""
    return [t.flat(count, body, ANY)]


def pool_avg(fusion, step) -> list:
    s, kernel, stride, padding, dilation = _attributes(step)
    include = step.ints[-1]
    x, out = step.inputs[0], step.outputs[0]
    t = Text(step.routine, step.node)
    o = names_of("o", 2 + s)
    at = [*o[:2], *names_of("x", s)]
    wide = wide_type(x.dtype)

    def head(k):
        n = t.dim(x.shape[2 + k])
        return (
            f"for (i64 w{k} = 0; w{k} < {kernel[k]}; ++w{k}) {{ const i64 x{k} = o{2 + k} * {stride[k]} - {padding[k]}"
            f" + w{k} * {dilation[k]}; if (x{k} < 0 || x{k} >= {n}) continue;\n"
        )

    count = _count(t, x, s, kernel, stride, padding, dilation, include, [f"o{2 + k}" for k in range(s)])
    body = f"""{_order_digits(t, out, o)}
{wide} s = 0;
{_loops(s, head, f"s += {read(x.dtype, t.at(x, at))};")}
{count}
{t.at(out, o, True)} = {write(out.dtype, f"s / ({wide})count")};"""
    return [t.flat(count_of(out), body)]


def _count(t, x, s, kernel, stride, padding, dilation, include, names) -> str:
    """`count`: how many elements of the window at an output index are averaged. Padding counts, but not beyond its own width."""
    lines = ["i64 count = 1;"]
    for k in range(s):
        n = t.dim(x.shape[2 + k])
        low, high = (f"-{padding[k]}", f"{n} + {padding[k]}") if include else ("0", n)
        lines.append(
            f"{{ i64 c = 0; for (i64 w = 0; w < {kernel[k]}; ++w) {{ const i64 q = {names[k]} * {stride[k]} - {padding[k]}"
            f" + w * {dilation[k]}; c += q >= {low} && q < {high}; }} count *= c; }}"
        )
    return "\n".join(lines) + "\nif (count < 1) count = 1;"


def pool_avg_backward(fusion, step) -> list:
    s, kernel, stride, padding, dilation = _attributes(step)
    include = step.ints[-1]
    g, out = step.inputs[0], step.outputs[0]
    t = Text(step.routine, step.node)
    x = names_of("x", 2 + s)
    at = [*x[:2], *names_of("o", s)]
    wide = wide_type(g.dtype)

    def head(k):
        n, reach = t.dim(g.shape[2 + k]), dilation[k] * (kernel[k] - 1)
        hit = (
            f" if ((x{2 + k} + {padding[k]} - o{k} * {stride[k]}) % {dilation[k]} != 0) continue;"
            if dilation[k] > 1
            else ""
        )
        return (
            f"i64 first{k} = x{2 + k} + {padding[k]} - {reach};"
            f" first{k} = first{k} <= 0 ? 0 : (first{k} + {stride[k] - 1}) / {stride[k]};\n"
            f"i64 last{k} = (x{2 + k} + {padding[k]}) / {stride[k]}; if (last{k} > {n} - 1) last{k} = {n} - 1;\n"
            f"for (i64 o{k} = first{k}; o{k} <= last{k}; ++o{k}) {{{hit}\n"
        )

    count = _count(t, out, s, kernel, stride, padding, dilation, include, names_of("o", s))
    body = f"""{_order_digits(t, out, x)}
{wide} s = 0;
{_loops(s, head, count + f" s += {read(g.dtype, t.at(g, at))} / ({wide})count;")}
{t.at(out, x, True)} = {write(out.dtype, "s")};"""
    return [t.flat(count_of(out), body)]


def pool_adaptive_avg(fusion, step) -> list:
    x, out = step.inputs[0], step.outputs[0]
    s = len(out.shape) - 2
    t = Text(step.routine, step.node)
    o = names_of("o", 2 + s)
    at = [*o[:2], *names_of("x", s)]
    wide = wide_type(x.dtype)

    def head(k):
        n, m = t.dim(x.shape[2 + k]), t.dim(out.shape[2 + k])
        return (
            f"const i64 first{k} = udiv(o{2 + k} * {n}, (i64){m}), last{k} = udiv((o{2 + k} + 1) * {n} + {m} - 1, (i64){m});\n"
            f"for (i64 x{k} = first{k}; x{k} < last{k}; ++x{k}) {{\n"
        )

    body = f"""{_order_digits(t, out, o)}
{wide} s = 0; i64 count = 0;
{_loops(s, head, f"s += {read(x.dtype, t.at(x, at))}; ++count;")}
{t.at(out, o, True)} = {write(out.dtype, f"s / ({wide})(count < 1 ? 1 : count)")};"""
    return [t.flat(count_of(out), body)]


def pool_adaptive_avg_backward(fusion, step) -> list:
    g, out = step.inputs[0], step.outputs[0]
    s = len(out.shape) - 2
    t = Text(step.routine, step.node)
    x = names_of("x", 2 + s)
    at = [*x[:2], *names_of("o", s)]
    wide = wide_type(g.dtype)

    def head(k):
        n, m = t.dim(out.shape[2 + k]), t.dim(g.shape[2 + k])
        return (  # windows that hold x begin at or before it and end behind it
            f"for (i64 o{k} = udiv(x{2 + k} * {m}, (i64){n}); o{k} < {m}; ++o{k}) {{\n"
            f"const i64 first{k} = udiv(o{k} * {n}, (i64){m}), last{k} = udiv((o{k} + 1) * {n} + {m} - 1, (i64){m});\n"
            f"if (first{k} > x{2 + k}) break; if (last{k} <= x{2 + k}) continue;\n"
        )

    size = " * ".join(f"(last{k} - first{k})" for k in range(s))
    body = f"""{_order_digits(t, out, x)}
{wide} s = 0;
{_loops(s, head, f"s += {read(g.dtype, t.at(g, at))} / ({wide})({size});")}
{t.at(out, x, True)} = {write(out.dtype, "s")};"""
    return [t.flat(count_of(out), body)]


POOLING = {
    "pool_max": pool_max, "pool_adaptive_max": pool_adaptive_max, "pool_max_backward": pool_max_backward,
    "pool_avg": pool_avg, "pool_avg_backward": pool_avg_backward, "pool_adaptive_avg": pool_adaptive_avg,
    "pool_adaptive_avg_backward": pool_adaptive_avg_backward,
}  # fmt: skip
