"""Products with sparse matrices and softmax over segments for CUDA devices (src/library/edges.cc): a thread or a warp for what it
writes, so that nothing is added atomically and sums are made in one order."""

from __future__ import annotations

from tandem.codegen.cuda.ops import C_TYPE
from tandem.codegen.cuda.text import Text, count_of, names_of
from tandem.graph.symbolic import ceildiv

_PLAIN, _WEIGHTED = 7, 8  # numbers of operands; see Spmm in tandem/ops/edges.py


def spmm(fusion, step) -> list:
    """A thread for every element of the result."""
    inputs, out = step.inputs, step.outputs[0]
    weighted = len(inputs) == _WEIGHTED
    first = 1 if len(inputs) == _PLAIN else 2
    x, start, column = inputs[0], inputs[first], inputs[first + 1]
    t = Text("spmm", step.node)
    names = names_of("d", len(out.shape))
    read = t.at(x, [f"(i64){t.at(column, ['q'])}", *names[1:]])
    factor = ""
    if weighted:
        number = t.at(inputs[4], ["q"])
        factor = f"{t.at(inputs[1], [f'(i64){number}', names[1]])} * "
    body = f"""{t.digits("i", out.shape, names)}
{C_TYPE[out.dtype]} sum = 0;
const i64 end = {t.at(start, [f"({names[0]} + 1)"])};
for (i64 q = {t.at(start, [names[0]])}; q < end; ++q) sum += {factor}{read};
{t.at(out, names, True)} = sum;"""
    return [t.flat(count_of(out), body)]


def sddmm(fusion, step) -> list:
    """A warp for the edges of a row and head; its lanes share the products."""
    (a, x, start, column, order), out = step.inputs[:5], step.outputs[0]
    t = Text("sddmm", step.node)
    rows, heads = a.shape[0], a.shape[1]
    body = f"""const i64 number = (i64)blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
if (number >= (i64){t.dim(rows)} * {t.dim(heads)}) return;
{t.digits("number", (rows, heads), ["row", "h"])}
const i64 end = {t.at(start, ["(row + 1)"])};
for (i64 q = {t.at(start, ["row"])}; q < end; ++q) {{
  const i64 c = {t.at(column, ["q"])};
  {C_TYPE[out.dtype]} sum = 0;
  for (i64 k = lane; k < {t.dim(a.shape[2])}; k += 32) sum += {t.at(a, ["row", "h", "k"])} * {t.at(x, ["c", "h", "k"])};
  for (int step = 16; step; step >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, step);
  if (lane == 0) {t.at(out, [f"(i64){t.at(order, ['q'])}", "h"], True)} = sum;
}}"""
    return [t.step(body, ceildiv(rows * heads, 8))]


def segment_softmax(fusion, step) -> list:
    """A thread for a segment and head."""
    (x, start), out = step.inputs, step.outputs[0]
    t = Text("segment_softmax", step.node)
    kind, rows = C_TYPE[out.dtype], start.shape[0] - 1
    body = f"""{t.digits("i", (rows, out.shape[1]), ["row", "h"])}
const i64 begin = {t.at(start, ["row"])}, end = {t.at(start, ["(row + 1)"])};
if (begin == end) return;
{kind} best = {t.at(x, ["begin", "h"])}, total = 0;
for (i64 q = begin + 1; q < end; ++q) {{ const {kind} v = {t.at(x, ["q", "h"])}; best = v > best || v != v ? v : best; }}
for (i64 q = begin; q < end; ++q) {{
  const {kind} v = exp({t.at(x, ["q", "h"])} - best);
  total += v;
  {t.at(out, ["q", "h"], True)} = v;
}}
const {kind} factor = ({kind})1 / total;
for (i64 q = begin; q < end; ++q) {t.at(out, ["q", "h"], True)} *= factor;"""
    return [t.flat(rows * out.shape[1], body)]


def segment_softmax_backward(fusion, step) -> list:
    (y, g, start), out = step.inputs, step.outputs[0]
    t = Text("segment_softmax_backward", step.node)
    kind, rows = C_TYPE[out.dtype], start.shape[0] - 1
    body = f"""{t.digits("i", (rows, out.shape[1]), ["row", "h"])}
const i64 begin = {t.at(start, ["row"])}, end = {t.at(start, ["(row + 1)"])};
{kind} total = 0;
for (i64 q = begin; q < end; ++q) total += {t.at(y, ["q", "h"])} * {t.at(g, ["q", "h"])};
for (i64 q = begin; q < end; ++q)
  {t.at(out, ["q", "h"], True)} = {t.at(y, ["q", "h"])} * ({t.at(g, ["q", "h"])} - total);"""
    return [t.flat(rows * out.shape[1], body)]


EDGES = {
    "spmm": spmm, "sddmm": sddmm, "segment_softmax": segment_softmax, "segment_softmax_backward": segment_softmax_backward,
}  # fmt: skip
