"""td.export.c: a function or a module as a folder of C."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from typing import NamedTuple

from tandem import _runtime
from tandem.errors import UnsupportedError, ValueRangeError
from tandem.export.c99 import files
from tandem.export.c99.program import Program
from tandem.export.c99.target import TARGET
from tandem.export.fold import fold_weights
from tandem.export.in_parts import real_weights
from tandem.export.trace import to_numpy, trace
from tandem.files import write as write_file
from tandem.program.driver import schedule_for
from tandem.tensors.constructors import asarray
from tandem.tree import flatten

_RESERVED = {
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern", "float",
    "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed", "sizeof", "static",
    "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while", "bool", "true", "false", "arena",
    "weights", "main", "argc", "argv", "worst", "want", "error", "from", "to",
}  # fmt: skip


class CProgram(NamedTuple):
    """What was written."""

    name: str
    folder: Path
    files: list[str]
    arena_bytes: int  # memory for everything between inputs and results
    weight_bytes: int

    def __str__(self):
        sizes = f"arena {self.arena_bytes} bytes, weights {self.weight_bytes} bytes"
        return f"{self.name}: {sizes}, {len(self.files)} files in {self.folder}"


def c(
    fn, args, folder, *, name: str = "model", weights: str = "arrays", input_names=None, output_names=None
) -> CProgram:
    """Writes a function or module as C99 that needs nothing but math.h: no other library, no malloc, no threads.

    fn: a module or a function of tensors. It runs once, on tensors without values, with gradients off: call `model.eval()` before.
    args: the tensors of one call, or one tensor; their sizes are those of every call.
    name: of the function `NAME_run` and of the files NAME.h, NAME.c, NAME_weights.c; main.c and CMakeLists.txt come with them.
    weights: "arrays": const arrays in NAME_weights.c; "binary": NAME_weights.bin, which `NAME_set_weights` is given a pointer to.

    Values between inputs and results lie in one static arena, whose size is NAME_ARENA_BYTES and is what the result says. main.c
    runs `args` and compares with what they give here.

    >>> made = td.export.c(td.nn.Linear(3, 2), td.ones(1, 3), "/tmp/linear_c", name="linear")
    >>> made.arena_bytes, made.weight_bytes, sorted(made.files)
    (0, 48, ['CMakeLists.txt', 'linear.c', 'linear.h', 'linear_weights.c', 'main.c'])
    """
    if weights not in ("arrays", "binary"):
        raise ValueRangeError("export.c", f"weights is {weights!r}; it may be 'arrays' or 'binary'")
    if _identifier(name) != name:
        raise ValueRangeError("export.c", f"{name!r} is no name of a C function", fix=f"name={_identifier(name)!r}")
    args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    tensors = [a if isinstance(a, _runtime.Tensor) else asarray(a) for a in args]
    exported = fold_weights(real_weights(trace(fn, tuple(tensors), False, input_names)))
    inputs, outputs = _arguments(fn, tensors, exported, output_names)
    taken = {a.name for a in [*inputs, *outputs]}
    graph, schedule = schedule_for(exported.graph, TARGET)
    stored = {}
    names = [a.name for a in inputs]
    for i, (weight, t) in enumerate(exported.weights.items()):
        names.append(_unique(f"{name}_{weight}", taken))
        stored[len(inputs) + i] = to_numpy(t)
    program = Program(graph, schedule, names, stored, [a.name for a in outputs])
    return _write_files(Path(folder), name, program, inputs, outputs, weights == "binary")


def _write_files(folder: Path, name: str, program: Program, inputs: list, outputs: list, binary: bool) -> CProgram:
    _, size = files.layout(program.weights)
    texts = {
        f"{name}.h": files.header(name, inputs, outputs, program.arena_bytes, size, binary),
        f"{name}.c": files.source(name, program, inputs, outputs, binary),
        "main.c": files.main(name, inputs, outputs, binary),
        "CMakeLists.txt": files.cmake(name, binary),
    }
    folder.mkdir(parents=True, exist_ok=True)
    if binary:
        write_file(folder / f"{name}_weights.bin", files.weights_binary(program))
    else:
        texts[f"{name}_weights.c"] = files.weights_source(program)
    for file, text in texts.items():
        write_file(folder / file, text)
    made = [*texts, *([f"{name}_weights.bin"] if binary else [])]
    return CProgram(name, folder, made, program.arena_bytes, size)


def _arguments(fn, tensors: list, exported, output_names) -> tuple[list, list]:
    """Inputs and results with their values in one call."""
    before = _runtime.set_grad_enabled(False)
    try:
        results, _ = flatten(fn(*tensors))
    finally:
        _runtime.set_grad_enabled(before)
    given = list(output_names or exported.outputs)
    if len(given) != len(results):
        raise ValueRangeError("export.c", f"{len(given)} names were given for {len(results)} results")
    taken: set[str] = set()
    results = [r if isinstance(r, _runtime.Tensor) else asarray(r) for r in results]
    named = [*zip(exported.arguments, tensors, strict=True), *zip(given, results, strict=True)]
    made = []
    for name, t in named:
        if t.dtype.is_complex:
            raise UnsupportedError("export.c", f"{name!r} is {t.dtype}; complex numbers have no C form here")
        made.append(files.Argument(_unique(name, taken), t.dtype, tuple(t.shape), to_numpy(t)))
    return made[: len(tensors)], made[len(tensors) :]


def _identifier(name: str) -> str:
    made = re.sub(r"\W", "_", name, flags=re.ASCII)
    made = f"_{made}" if not made or made[0].isdigit() else made
    return f"{made}_" if made in _RESERVED or keyword.iskeyword(made) or re.fullmatch(r"[ta]\d+", made) else made


def _unique(name: str, taken: set[str]) -> str:
    made = _identifier(name)
    while made in taken:
        made += "_"
    taken.add(made)
    return made
