"""Attention for groups of warps, run on the CPU: the sources as they are, with the device's own instructions done by loops."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tandem as td
from tandem.codegen import lower
from tandem.codegen.cuda import attention_wgmma as wgmma
from tandem.codegen.cuda.attention import GROUPS
from tandem.codegen.targets import target_of
from tandem.graph.symbolic import hint
from tandem.ops.attention import Attention, AttentionBackward
from tandem.ops.define import ParameterSpec, make_function
from tandem.tracing import compile as tracing
from tandem.tracing.describe import TensorSpec

HERE = Path(__file__).parent

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")]


def lowered(body, shapes, dtypes):
    parameters = [ParameterSpec(f"x{i}", "tensor", True, None, False) for i in range(len(shapes))]
    spec = [TensorSpec("tensor", t.code, s, (), 0, None, False, 1) for s, t in zip(shapes, dtypes)]
    traced = tracing.trace_call(make_function("fn", body, parameters), spec)
    tracing.resolve_sizes(traced.graph)
    with td.switches(WGMMA=1):
        schedule = lower(traced.graph, traced.layouts, target=target_of(1), on_host=traced.numbers)
    return traced.graph, schedule


def build(kernel, folder, primitives):
    text = kernel.text
    for old in primitives:
        text = text.replace(old, "")
    text = f'#include "{HERE}/cuda_groups.h"\n{text}'
    text += f"""
extern "C" int run(const Arguments* a, int blocks) {{
  for (int b = 0; b < blocks; ++b) {{
    blockIdx.x = b;
    if (!run_block({kernel.threads[0]}, [&] {{ td_{kernel.name}(*a); }})) return 1;
  }}
  return 0;
}}
"""
    path = folder / f"{kernel.name}.cc"
    path.write_text(text)
    library = path.with_suffix(".so")
    subprocess.run(
        ["g++", "-O1", "-std=c++20", "-w", "-shared", "-fPIC", "-o", str(library), str(path)], check=True, timeout=300
    )
    return ctypes.CDLL(str(library)).run


def run_schedule(graph, schedule, arrays, folder):
    """The steps, which are all kernels, on numpy arrays; gives those of the graph's outputs."""
    memory = {}

    def base(buffer):
        return buffer.base if buffer.kind == "view" else buffer

    for value, array in zip(graph.inputs, arrays):
        memory[id(base(schedule.buffer_of[value]))] = array
    primitives = [wgmma.PRIMITIVES.replace("SUFFIX", "bf16")]
    for step in schedule.steps:
        words = []
        for buffer in step.buffers:
            root = base(buffer)
            if id(root) not in memory:
                size = 1 + sum((hint(n) - 1) * hint(s) for n, s in zip(root.shape, root.strides))
                memory[id(root)] = np.zeros(size * root.dtype.itemsize, np.uint8)
            offset = hint(buffer.offset) * buffer.dtype.itemsize if buffer.kind == "view" else 0
            words.append(memory[id(root)].ctypes.data + offset)
        words += [hint(n) for n in step.ints]
        run = build(step.kernel, folder, primitives)
        assert run((ctypes.c_uint64 * len(words))(*words), hint(step.extent)) == 0, "the kernel does not end"
    return [(memory[id(base(schedule.buffer_of[v]))], schedule.buffer_of[v]) for v in graph.outputs]


def to_bits(x):
    return (np.ascontiguousarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def from_bits(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


def read(memory, buffer):
    flat = from_bits(memory.view(np.uint16))
    strides = [4 * hint(s) for s in buffer.strides]
    offset = hint(buffer.offset) if buffer.kind == "view" else 0
    return np.lib.stride_tricks.as_strided(flat[offset:], [hint(n) for n in buffer.shape], strides)


def reference(q, k, v, g, causal, scale, mask):
    s = np.einsum("bhtd,bhsd->bhts", q, k) * scale
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    if causal:
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
    top = s.max(-1, keepdims=True)
    p = np.exp(s - np.where(np.isfinite(top), top, 0))
    p /= np.maximum(p.sum(-1, keepdims=True), 1e-30)
    out = p @ v
    dp = np.einsum("bhtd,bhsd->bhts", g, v)
    ds = p * (dp - (g * out).sum(-1, keepdims=True)) * scale
    return out, ds @ k, np.swapaxes(ds, -1, -2) @ q, np.swapaxes(p, -1, -2) @ g


@pytest.mark.parametrize(
    ("b", "h", "t", "s", "d", "causal", "scale", "mask", "ahead"),
    [
        (2, 1, 150, 150, 64, True, 0.125, None, 0),
        (1, 2, 70, 130, 80, False, -0.2, "bool", 0),
        (2, 1, 330, 400, 64, True, 0.125, None, 1),
    ],
)
def test_attention_by_groups_of_warps(b, h, t, s, d, causal, scale, mask, ahead, tmp_path, monkeypatch):
    for key in GROUPS:
        monkeypatch.setitem(GROUPS, key, (2, 1, 4, ahead))
    random = np.random.default_rng(0)
    shapes = [(b, h, t, d), (b, h, t, d), (b, h, s, d), (b, h, s, d)]
    bits = [to_bits(random.standard_normal(x)) for x in shapes]
    dtypes = [td.bfloat16] * 4
    masks = []
    if mask:
        masks = [random.random((b, h, t, s)) > 0.3]
        masks[0][0, 0, 5] = False
        dtypes.append(td.bool)

    def both(g, q, k, v, *mask):
        out, sums = Attention(causal, bool(mask), scale)(q, k, v, *mask)
        return (out, *AttentionBackward(causal, bool(mask), scale)(g, q, k, v, out, sums, *mask))

    graph, schedule = lowered(both, [*shapes, *(m.shape for m in masks)], dtypes)
    results = run_schedule(graph, schedule, [*bits, *masks], tmp_path)
    g, q, k, v = (from_bits(x).astype(np.float64) for x in bits)
    for (memory, buffer), want in zip(results, reference(q, k, v, g, causal, scale, masks[0] if masks else None)):
        error = np.linalg.norm(read(memory, buffer) - want) / np.linalg.norm(want)
        assert error < 6e-3
