"""Routines on integers and lines for CUDA devices: greatest common divisors, counts, running extremes."""

from __future__ import annotations

from tandem.codegen.cuda.ops import C_TYPE
from tandem.codegen.cuda.text import Text, count_of, names_of, read, wide_type, write
from tandem.graph.symbolic import product


def gcd(fusion, step) -> list:
    x, z, out = *step.inputs, step.outputs[0]
    t = Text("gcd", step.node)
    names = names_of("d", len(out.shape))
    # the size of the lowest number has no signed form
    body = f"""{t.digits("i", out.shape, names) if names else ""}
const {C_TYPE[x.dtype]} x = {t.at(x, names)}, z = {t.at(z, names)};
u64 m = x < 0 ? 0ull - (u64)x : (u64)x, n = z < 0 ? 0ull - (u64)z : (u64)z;
while (n) {{ const u64 r = m % n; m = n; n = r; }}
{t.at(out, names, True)} = ({C_TYPE[out.dtype]})m;"""
    return [t.flat(count_of(out), body)]


def bincount(fusion, step) -> list:
    """Counts are integers, so that the order in which they are added makes no difference."""
    x, out = step.inputs[0], step.outputs[0]
    zero = Text("zeros", step.node)
    first = zero.flat(count_of(out), f"{zero.at(out, ['i'], True)} = 0;")
    t = Text("bincount", step.node)
    names = names_of("d", len(x.shape))
    body = f"""{t.digits("i", x.shape, names) if names else ""}
const u64 v = (u64)(i64){t.at(x, names)} - (u64)(i64){t.dim(step.ints[0])};
if (v < (u64){t.dim(out.shape[0])}) atomicAdd((u64*)&{t.at(out, ["(i64)v"], True)}, 1ull);"""
    return [first, t.flat(count_of(x), body)]


def running_extremum(fusion, step) -> list:
    """One thread a line."""
    x, (values, places) = step.inputs[0], step.outputs
    axis, smallest = step.ints
    t = Text("running_extremum", step.node)
    outer = [n for a, n in enumerate(x.shape) if a != axis]
    names = names_of("d", len(outer))
    at = [*names[:axis], "k", *names[axis:]]
    wide = wide_type(x.dtype)
    body = f"""{t.digits("i", outer, names) if outer else ""}
{wide} best = 0; i64 place = 0;
for (i64 k = 0; k < {t.dim(x.shape[axis])}; ++k) {{
  const {wide} v = {read(x.dtype, t.at(x, at))};
  if (k == 0 || v != v || (best == best && v {"<=" if smallest else ">="} best)) {{ best = v; place = k; }}
  {t.at(values, at, True)} = {write(values.dtype, "best")};
  {t.at(places, at, True)} = place;
}}"""
    return [t.flat(product(outer), body)]


COUNTING = {"gcd": gcd, "bincount": bincount, "running_extremum": running_extremum}
