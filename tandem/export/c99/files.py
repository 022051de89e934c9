"""The files of an exported program: header, source, weights, a main for testing, CMake."""

from __future__ import annotations

import numpy as np

from tandem import dtypes
from tandem.codegen.c.ops import HELPERS, TYPE
from tandem.dtypes import DType
from tandem.export.c99.arena import ALIGNMENT
from tandem.export.c99.program import Program

_NARROW = {"float16", "bfloat16"}


class Argument:
    """An input or a result as C sees it: a row-major array; 16-bit floats as their bits."""

    def __init__(self, name: str, dtype: DType, shape: tuple, example: np.ndarray):
        self.name, self.dtype, self.shape = name, dtype, tuple(map(int, shape))
        self.example = np.ascontiguousarray(example)

    @property
    def type(self) -> str:
        return "uint16_t" if TYPE[self.dtype] in _NARROW else TYPE[self.dtype]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def __str__(self):
        return f"{self.name}: {self.dtype.short}[{','.join(map(str, self.shape))}]"


def elements(array: np.ndarray, dtype: DType) -> str:
    """Elements as initialisers, a few to a line."""
    flat = array.reshape(-1)
    if TYPE[dtype] in _NARROW:
        words = [f"{{{bits:#06x}}}" for bits in flat.view(np.uint16)]
    elif dtype.kind == "float":
        suffix = "f" if dtype.itemsize == 4 else ""
        words = [_float(x, suffix) for x in flat.tolist()] if suffix == "" else [_float(x, suffix) for x in flat]
    elif dtype is dtypes.bool_:
        words = ["1" if x else "0" for x in flat]
    elif dtype.itemsize == 8:
        macro = "UINT64_C" if dtype.kind == "uint" else "INT64_C"
        words = ["INT64_MIN" if x == -(1 << 63) else f"{macro}({x})" for x in flat.tolist()]
    else:
        words = [str(x) for x in flat.tolist()]
    lines = [", ".join(words[i : i + 8]) for i in range(0, len(words), 8)]
    return ",\n  ".join(lines) or "0"


def _float(x, suffix: str) -> str:
    if x != x:
        return "NAN"
    if x in (float("inf"), float("-inf")):
        return "INFINITY" if x > 0 else "-INFINITY"
    text = repr(float(x)) if not suffix else f"{x:.9g}"
    return text + ("" if "." in text or "e" in text else ".0") + suffix


def layout(weights: dict[str, np.ndarray]) -> tuple[dict[str, int], int]:
    """Where each weight begins in a file of all, and the size of it."""
    offsets, end = {}, 0
    for name, w in weights.items():
        offsets[name] = end
        end += -(-w.nbytes // ALIGNMENT) * ALIGNMENT
    return offsets, end


def header(name: str, inputs: list[Argument], outputs: list[Argument], arena: int, weights: int, binary: bool) -> str:
    guard = f"{name.upper()}_H"
    parameters = [f"const {a.type}* {a.name}" for a in inputs] + [f"{a.type}* {a.name}" for a in outputs]
    lines = [
        f"#ifndef {guard}", f"#define {guard}", "", "#include <stdbool.h>", "#include <stdint.h>", "",
        f"#define {name.upper()}_ARENA_BYTES {arena}", f"#define {name.upper()}_WEIGHT_BYTES {weights}", "",
        "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
    ]  # fmt: skip
    if binary:
        lines += [
            f"/* The contents of {name}_weights.bin, aligned to {ALIGNMENT} bytes, which must stay there: before the first run. */",
            f"void {name}_set_weights(const void* weights);", "",
        ]  # fmt: skip
    lines += [
        "/* Arrays are row-major and must not overlap. One call at a time, as all use one arena.",
        *(f"   {a}" for a in inputs), *(f"   {a} (result)" for a in outputs),
        "   Gives 0; 1 if an index was out of range" + ("; 2 if there are no weights yet. */" if binary else ". */"),
        f"int {name}_run({', '.join(parameters)});", "", "#ifdef __cplusplus", "}", "#endif", "", "#endif", "",
    ]  # fmt: skip
    return "\n".join(lines)


def source(name: str, program: Program, inputs: list[Argument], outputs: list[Argument], binary: bool) -> str:
    lines = [f"/* Made by tandem.export.c: {name}_run computes", *(f"     {a}" for a in outputs), "   from"]
    lines += [*(f"     {a}" for a in inputs), "*/", f'#include "{name}.h"', "", "#include <math.h>", ""]
    for dtype in {w for w in _NARROW if w in program.ops.used}:
        lines.append(HELPERS[dtype][1])
    lines += [text for helper, (_, text) in HELPERS.items() if helper in program.ops.used and helper not in _NARROW]
    lines += ["", f"static union {{ double align; unsigned char bytes[{max(program.arena_bytes, 8)}]; }} arena;", ""]
    kinds = dict(program.declared)
    lines += [
        f"#define {t} (({TYPE[kinds[t]]}*)(arena.bytes + {at}))" for t, at in program.offsets.items()
    ]  # fmt: skip
    lines.append("")
    if binary:
        offsets, _ = layout(program.weights)
        lines.append("static const unsigned char* weights;")
        for w in program.weights:
            kind = TYPE[dtypes.as_dtype(program.weights[w].dtype)]
            lines.append(f"#define {w} ((const {kind}*)(weights + {offsets[w]}))")
        lines += ["", f"void {name}_set_weights(const void* given) {{ weights = (const unsigned char*)given; }}"]
    else:
        for w, array in program.weights.items():
            lines.append(f"extern const {TYPE[dtypes.as_dtype(array.dtype)]} {w}[{max(array.size, 1)}];")
    lines += ["", *(text + "\n" for text in program.sources)]
    parameters = [
        f"const {a.type}* {a.name}_" if a.type != TYPE[a.dtype] else f"const {a.type}* {a.name}" for a in inputs
    ]
    parameters += [f"{a.type}* {a.name}_" if a.type != TYPE[a.dtype] else f"{a.type}* {a.name}" for a in outputs]
    lines.append(f"int {name}_run({', '.join(parameters)}) {{")
    for a in inputs:
        if a.type != TYPE[a.dtype]:
            lines.append(f"  const {TYPE[a.dtype]}* {a.name} = (const {TYPE[a.dtype]}*){a.name}_;")
    for a in outputs:
        if a.type != TYPE[a.dtype]:
            lines.append(f"  {TYPE[a.dtype]}* {a.name} = ({TYPE[a.dtype]}*){a.name}_;")
    if binary:
        lines.append("  if (!weights) return 2;")
    lines += [f"  (void){a.name};" for a in inputs if a.name not in program.read]
    lines += ["  " + line for line in program.body.lines]
    lines += ["  return 0;", "}", ""]
    return "\n".join(lines)


def weights_source(program: Program) -> str:
    lines = ["#include <math.h>", "#include <stdbool.h>", "#include <stdint.h>", ""]
    kinds = {w: dtypes.as_dtype(a.dtype) for w, a in program.weights.items()}
    for narrow in sorted({TYPE[d] for d in kinds.values()} & _NARROW):
        lines.append(HELPERS[narrow][1])
    for w, array in program.weights.items():
        kind = TYPE[kinds[w]]
        head = f"const {kind} {w}[{max(array.size, 1)}]"
        lines += [f"extern {head};", f"{head} = {{\n  {elements(array, kinds[w])}\n}};", ""]
    return "\n".join(lines)


def weights_binary(program: Program) -> bytes:
    offsets, size = layout(program.weights)
    made = bytearray(size)
    for w, array in program.weights.items():
        made[offsets[w] : offsets[w] + array.nbytes] = array.tobytes()
    return bytes(made)


def main(name: str, inputs: list[Argument], outputs: list[Argument], binary: bool) -> str:
    """Runs the example and compares, or the contents of a file."""
    big = name.upper()
    lines = [
        "/* Without arguments: runs the example that the program was exported with, and compares.",
        "   With two: reads inputs from the first file, one after the other, and writes results to the second. */",
        f'#include "{name}.h"', "", "#include <math.h>", "#include <stdio.h>", "",
    ]  # fmt: skip
    for a in inputs:
        lines.append(f"static {a.type} {a.name}[{max(a.size, 1)}] = {{\n  {_example(a)}\n}};")
    for a in outputs:
        lines.append(f"static {a.type} {a.name}[{max(a.size, 1)}];")
        lines.append(f"static const {a.type} expected_{a.name}[{max(a.size, 1)}] = {{\n  {_example(a)}\n}};")
    arguments = ", ".join(a.name for a in [*inputs, *outputs])
    if binary:
        lines += [f"static union {{ double align[2]; unsigned char bytes[{big}_WEIGHT_BYTES + 1]; }} weights;", ""]
    lines += ["", "int main(int argc, char** argv) {"]
    if binary:
        lines += [
            f'  FILE* stored = fopen("{name}_weights.bin", "rb");',
            f"  if (!stored || fread(weights.bytes, 1, {big}_WEIGHT_BYTES, stored) != {big}_WEIGHT_BYTES) {{",
            f'    fprintf(stderr, "{name}_weights.bin is not here\\n");', "    return 1;", "  }", "  fclose(stored);",
            f"  {name}_set_weights(weights.bytes);",
        ]  # fmt: skip
    lines += ["  if (argc == 3) {", '    FILE* from = fopen(argv[1], "rb");', "    if (!from) return 1;"]
    for a in inputs:
        lines.append(f"    if (fread({a.name}, sizeof *{a.name}, {a.size}, from) != {a.size}) return 1;")
    lines += ["    fclose(from);", f"    if ({name}_run({arguments})) return 1;"]
    lines += ['    FILE* to = fopen(argv[2], "wb");', "    if (!to) return 1;"]
    for a in outputs:
        lines.append(f"    if (fwrite({a.name}, sizeof *{a.name}, {a.size}, to) != {a.size}) return 1;")
    lines += ["    return fclose(to);", "  }", f"  if ({name}_run({arguments})) return 1;", "  double worst = 0;"]
    for a in outputs:
        if a.type == TYPE[a.dtype]:
            got, want = f"(double){a.name}[i]", f"(double)expected_{a.name}[i]"
            lines += [
                f"  for (int i = 0; i < {a.size}; ++i) {{",
                f"    const double want = {want}, error = fabs({got} - want) / (1 + fabs(want));",
                f"    if (!({got} == want) && !(error <= worst)) worst = error;", "  }",
            ]  # fmt: skip
    lines += [
        f'  printf("arena: %d bytes, weights: %d bytes, largest relative error: %g\\n", {big}_ARENA_BYTES, {big}_WEIGHT_BYTES,',
        "         worst);", "  return !(worst <= 1e-3);", "}", "",
    ]  # fmt: skip
    return "\n".join(lines)


def _example(a: Argument) -> str:
    return elements(a.example, a.dtype).replace("{", "").replace("}", "")


def cmake(name: str, binary: bool) -> str:
    sources = f"{name}.c" if binary else f"{name}.c {name}_weights.c"
    return f"""\
cmake_minimum_required(VERSION 3.13)
project({name} C)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
option({name.upper()}_NATIVE "use all instructions of this processor" OFF)
add_library({name} STATIC {sources})
set_target_properties({name} PROPERTIES C_STANDARD 99 C_EXTENSIONS OFF)
target_include_directories({name} PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})
target_compile_options({name} PRIVATE $<$<CONFIG:Release>:-O3>)
if({name.upper()}_NATIVE)
  target_compile_options({name} PRIVATE -march=native)
endif()
target_link_libraries({name} PUBLIC m)
add_executable({name}_main main.c)
target_link_libraries({name}_main {name})
enable_testing()
add_test(NAME {name}_example COMMAND {name}_main WORKING_DIRECTORY ${{CMAKE_CURRENT_SOURCE_DIR}})
"""
