"""Kernels compile for other machines too, without calls to anything outside."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tandem import dtypes
from tandem.codegen import lower
from tandem.codegen.llvm.angle import ROUTINE
from tandem.codegen.llvm.render import render
from tandem.ops.movement import Embed, Permute
from tests.codegen.ops import add, cast, exp, named, reduce, softmax
from tests.codegen.run_schedule import build

llvm = pytest.importorskip("llvmlite.binding")

X = np.ones((9, 40), np.float32)
FUNCTIONS = {
    "add": lambda a: add(a, 1.0),
    "exp": exp,
    "gelu": named("gelu", lambda b, x: x * 0.5 * (b.erf(x * 0.7) + 1.0)),
    "softmax": softmax,
    "sum_columns": lambda a: reduce("sum", a, (0,)),
    "argmax": lambda a: reduce("argmax", a, (1,)),
    "transposed": lambda a: add(Permute((1, 0))(a), Permute((1, 0))(Embed((0, 0), (1, 1), a.shape)(exp(a)))),
    "float16": lambda a: cast(exp(cast(a, dtypes.float16)), dtypes.bfloat16),
    "float64": lambda a: exp(cast(a, dtypes.float64)),
    "integers": lambda a: named("mod", lambda b, x: x % 7 + x // 3)(cast(a, dtypes.int16)),
    "complex64": lambda a: exp(cast(a, dtypes.complex64)),
    "complex128": lambda a: add(Permute((1, 0))(cast(a, dtypes.complex128)), 1j),
    "complex_sum": lambda a: reduce("sum", cast(a, dtypes.complex64), (0,)),
    "complex_pad": lambda a: Embed((1, 2), (1, 3), (11, 130))(cast(a, dtypes.complex64)),
    "pad": lambda a: Embed((1, 2), (1, 3), (11, 130))(a),
}
AVX2 = frozenset(["sse4_1", "avx", "avx2", "fma", "f16c"])
TARGETS = {
    "znver3": ("x86_64-unknown-linux-gnu", "znver3", 32, AVX2),
    "skylake-avx512": ("x86_64-unknown-linux-gnu", "skylake-avx512", 64, AVX2 | {"avx512f", "avx512bw"}),
    "ivybridge": ("x86_64-unknown-linux-gnu", "ivybridge", 16, frozenset(["sse4_1", "avx", "f16c"])),
    "arm": ("aarch64-unknown-linux-gnu", "neoverse-n1", 16, frozenset({"asimd"})),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernels_compile(target, name):
    triple, cpu, width, features = TARGETS[target]
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=2, reloc="pic", codemodel="small")
    arrays = [X] if name != "float16" else [X.astype(ml_dtypes.bfloat16)]
    trace = build(FUNCTIONS[name], arrays)
    for step in lower(trace.graph, trace.layouts).steps:
        module = llvm.parse_assembly(f'target triple = "{triple}"\n' + render(step.kernel, width, features))
        module.verify()
        code = machine.emit_assembly(module)
        calls = [
            line
            for line in code.splitlines()
            if line.split()[:1] in (["call"], ["callq"], ["bl"], ["jmp"]) and "@" in line and ROUTINE not in line
        ]
        assert calls == []
        if target == "skylake-avx512" and name in ("add", "exp", "softmax"):
            assert "%zmm" in code
        if target == "znver3" and name in ("add", "exp", "gelu", "softmax", "sum_columns"):
            assert "%ymm" in code
