"""Kernels as C99: what the text looks like, and that a C compiler's code computes what LLVM's does."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from tandem import dtypes
from tandem.codegen import lower
from tandem.codegen.c.ops import Ops
from tandem.codegen.c.target import C99
from tandem.codegen.loops import Kernel
from tests.codegen.c.compiled import COMPILER, address, build
from tests.codegen.ops import add, cast
from tests.codegen.run_schedule import build as trace
from tests.codegen.run_schedule import run
from tests.codegen.test_targets import FUNCTIONS

X = (np.arange(9 * 40).reshape(9, 40) % 23 / 7 - 1).astype(np.float32)
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")


def test_a_kernel_reads_like_a_loop_somebody_wrote():
    made = trace(lambda a, b: add(a, b), [X, X])
    (step,) = lower(made.graph, made.layouts, target=C99).steps
    text = C99.source_of(step.kernel)
    assert "void kernel(void** pointers, const int64_t* ints, int64_t begin, int64_t end) {" in text
    assert re.search(
        r"const float v\d+ = p0\[i\d+\];\n.*\n +const float v\d+ = v\d+ \+ v\d+;\n +p2\[i\d+\] = v\d+;", text
    )
    assert "malloc" not in text and text.count("#include") == 3


@needs_compiler
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_those_of_llvm(name, monkeypatch):
    arrays = [X] if name != "float16" else [X.astype(ml_dtypes.bfloat16)]
    results = []
    for target_address in (Kernel.address, address):
        monkeypatch.setattr(Kernel, "address", target_address)
        made = trace(FUNCTIONS[name], arrays)
        results.append(run(lower(made.graph, made.layouts, target=C99), made.graph, arrays, parts=3))
    for llvm, c in zip(*results, strict=True):
        if "sum" in name or name == "softmax":
            np.testing.assert_allclose(c, llvm, rtol=1e-6)
        else:
            np.testing.assert_array_equal(c, llvm)


@needs_compiler
def test_every_float16_widens_and_narrows_as_numpy_has_it():
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(invalid="ignore"):
        near = np.concatenate([every.astype(np.float32) * np.float32(f) for f in (1, 1.0002, 0.9998)])
    for function, array in (
        (lambda a: cast(a, dtypes.float32), every),
        (lambda a: cast(a, dtypes.float16), near),
    ):
        made = trace(function, [array])
        schedule = lower(made.graph, made.layouts, target=C99)
        for step in schedule.steps:
            step.kernel.address = lambda kernel=step.kernel: address(kernel)
        (got,) = run(schedule, made.graph, [array])
        with np.errstate(over="ignore"):
            expected = array.astype(got.dtype)
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        assert same.all() and (np.signbit(got) == np.signbit(expected)).all()


@needs_compiler
def test_literals_are_exactly_their_bits():
    values = [0.1, -0.0, 3.0, 1e-45, 1e-40, 16777217.0, 3e38, float("inf"), float("nan"), -2.5]
    ops, body = Ops(), []
    for i, v in enumerate(values):
        single, double = struct.unpack("<I", struct.pack("<f", v))[0], struct.unpack("<Q", struct.pack("<d", v))[0]
        body.append(
            f"f[{i}] = {ops.constant(dtypes.float32, single)}; d[{i}] = {ops.constant(dtypes.float64, double)};"
        )
    text = ["#include <stdint.h>", *ops.helpers(), "void fill(float* f, double* d) {", *body, "}"]
    singles, doubles = np.zeros(len(values), np.float32), np.zeros(len(values), np.float64)
    build("\n".join(text), "literals").fill(ctypes.c_void_p(singles.ctypes.data), ctypes.c_void_p(doubles.ctypes.data))
    assert singles.tobytes() == np.array(values, np.float32).tobytes()
    assert doubles.tobytes() == np.array(values, np.float64).tobytes()


SAMPLE = ["activation", "binary", "complexes", "index", "movement", "random", "reduce", "small", "softmax", "unary"]


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_the_operator_checker_holds_with_kernels_of_a_c_compiler(name, tmp_path):
    environment = {
        **os.environ,
        "TANDEM_CACHE_DIR": str(tmp_path),
        "TANDEM_PREBUILT": "0",
        "TANDEM_COMPILE_WORKERS": "0",
    }
    plugin = ["-p", "tests.codegen.c.compiled", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", *plugin, f"tests/ops/test_{name}.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert re.search(r"[1-9]\d* kernels were compiled as C", done.stdout)
