"""Sums as CUDA devices add them up: the sources as they are, run on the CPU on a device so small that threads have much to do."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tandem as td
from tandem.codegen import lower
from tandem.codegen.buffer import root_of
from tandem.codegen.costs import CudaCosts
from tandem.codegen.cuda import nests
from tandem.codegen.cuda.kernel import entry
from tandem.codegen.cuda.ops import PRELUDE
from tandem.codegen.cuda.render import render
from tandem.codegen.targets import target_of
from tandem.graph.symbolic import hint
from tandem.ops.define import ParameterSpec, make_function
from tandem.tracing import compile as tracing
from tandem.tracing.describe import TensorSpec

HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

HEAD = f"""
#include <cmath>
#include <cstring>
#include "{HERE}/cuda_fibers.h"
#define __CUDA_ARCH__ 700
#define __device__
#define __forceinline__ inline
struct uint2 {{ unsigned x, y; }};
struct uint4 {{ unsigned x, y, z, w; }};
static float __uint_as_float(unsigned x) {{ float y; memcpy(&y, &x, 4); return y; }}
static unsigned __float_as_uint(float x) {{ unsigned y; memcpy(&y, &x, 4); return y; }}
static double __longlong_as_double(long long x) {{ double y; memcpy(&y, &x, 8); return y; }}
static unsigned __umulhi(unsigned x, unsigned y) {{ return (unsigned long long)x * y >> 32; }}
"""

RUN = """
extern "C" int run{number}(const Arguments* a, int blocks) {{
  gridDim.x = blocks;
  for (int b = 0; b < blocks; ++b) {{
    blockIdx.x = b;
    if (!run_block({x} * {y}, [&] {{ {name}(*a); }}, {y})) return 1;
  }}
  return 0;
}}
"""


def tenth(*shape):
    return np.full(shape, 0.1, np.float32)


def positive(*shape):
    return np.random.default_rng(0).uniform(0.5, 1.5, shape).astype(np.float32)


def squares(g, x):
    """As gradients of normalisation have it: sums along rows, and across all of them."""
    y = g * (x - td.mean(x, -1, keepdims=True))
    return td.sum(y, 0)


def with_infinity(*shape):
    x = tenth(*shape)
    x.flat[12345] = np.inf
    return x


CASES = {
    "all": (td.sum, [tenth(400_001)]),
    "all of a matrix": (td.sum, [positive(601, 701)]),
    "long rows": (lambda x: td.sum(x, -1), [tenth(3, 200_000)]),
    "rows of odd length": (lambda x: td.mean(x, -1), [positive(3, 100_003)]),
    "columns": (lambda x: td.sum(x, 0), [tenth(100_000, 10)]),
    "an odd number of columns": (lambda x: td.mean(x, 0), [positive(30_001, 7)]),
    "the middle": (lambda x: td.sum(x, 1), [tenth(2, 30_000, 8)]),
    "the outer ones": (lambda x: td.sum(x, (0, 2)), [positive(40, 6, 3000)]),
    "rows, then across them": (squares, [tenth(6000, 128), positive(6000, 128)]),
    "infinity": (td.sum, [with_infinity(300_000)]),
    "infinity in a column": (lambda x: td.sum(x, 0), [with_infinity(30_000, 10)]),
    "short rows": (lambda x: td.sum(x, -1), [positive(5, 300)]),
}


def lowered(body, shapes):
    parameters = [ParameterSpec(f"x{i}", "tensor", True, None, False) for i in range(len(shapes))]
    spec = [TensorSpec("tensor", td.float32.code, s, (), 0, None, False, 1) for s in shapes]
    traced = tracing.trace_call(make_function("fn", body, parameters), spec)
    tracing.resolve_sizes(traced.graph)
    return traced.graph, lower(traced.graph, traced.layouts, target=target_of(1), on_host=traced.numbers)


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """(graph, schedule) of every case and a library with the kernels of all, in order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nests, "PARTS", 4)
        patch.setitem(target_of(1).__dict__, "costs", CudaCosts(1))
        made = {name: lowered(body, [x.shape for x in arrays]) for name, (body, arrays) in CASES.items()}
    # Conversions are instructions of devices, which sums of float32 do not need.
    text = HEAD + "\n".join(line for line in PRELUDE.split("\n") if "asm(" not in line)
    kernels = [step.kernel for _, schedule in made.values() for step in schedule.steps]
    for number, kernel in enumerate(kernels):
        x, y = kernel.threads
        function = render(kernel).replace('extern "C" ', "") + RUN.format(
            number=number, x=x, y=y, name=entry(kernel.name)
        )
        text += f"namespace k{number} {{\n{function}}}\n"
    folder = tmp_path_factory.mktemp("sums")
    (folder / "sums.cc").write_text(text)
    command = ["g++", "-O1", "-ffp-contract=off", "-std=c++20", "-w", "-shared", "-fPIC", "-o", "sums.so", "sums.cc"]
    subprocess.run(command, cwd=folder, check=True, timeout=300)
    return made, ctypes.CDLL(str(folder / "sums.so"))


def run(name, made, library) -> np.ndarray:
    first = sum(len(schedule.steps) for _, schedule in list(made.values())[: list(made).index(name)])
    graph, schedule = made[name]
    memory = {}
    for value, array in zip(graph.inputs, CASES[name][1]):
        memory[id(root_of(schedule.buffer_of[value]))] = array
    for number, step in enumerate(schedule.steps, first):
        words = []
        for buffer in step.buffers:
            root = root_of(buffer)
            if id(root) not in memory:
                memory[id(root)] = np.zeros([hint(n) for n in root.shape], np.float32)
            words.append(memory[id(root)].ctypes.data)
        words += [hint(n) for n in step.ints]
        call = getattr(library, f"run{number}")
        assert call((ctypes.c_uint64 * len(words))(*words), hint(step.extent)) == 0, "the kernel does not end"
    (output,) = graph.outputs
    buffer = schedule.buffer_of[output]
    return memory[id(root_of(buffer))].reshape([hint(n) for n in buffer.shape])


@pytest.mark.parametrize("name", CASES)
def test_long_sums_are_as_exact_as_short_ones(name, programs):
    body, arrays = CASES[name]
    found = run(name, *programs)
    expected = body(*[td.tensor(x.astype(np.float64)) for x in arrays]).numpy()
    if name == "rows, then across them":  # what is added up is rounded itself, and cancels
        bar = 2e-6 * np.abs(arrays[0] * arrays[1]).astype(np.float64).sum(0)
    else:
        bar = 3e-7 * np.abs(expected)
    with np.errstate(invalid="ignore"):
        assert np.all((np.abs(found - expected) <= bar) | (found == expected)), np.max(np.abs(found / expected - 1))
