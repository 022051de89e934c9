"""Programs exported as C: compiled by a compiler, run on files of inputs, and what they should give."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np

import tandem as td
from tandem.tree import flatten

COMPILER = shutil.which("cc")
FLAGS = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable", "-Wno-unused-parameter"]


def compile_program(made, compiler=COMPILER, flags=("-O1",), out: str = "program") -> Path:
    sources = [str(made.folder / f) for f in made.files if f.endswith(".c")]
    command = [compiler, *FLAGS, *flags, "-o", str(made.folder / out), *sources, "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    return made.folder / out


def results_of(program: Path, args, like, runner=()) -> list[np.ndarray]:
    """What the program writes, given these tensors; `like`: tensors of the types and shapes of its results."""
    folder = program.parent
    (folder / "in.bin").write_bytes(b"".join(np.ascontiguousarray(a.numpy()).tobytes() for a in args))
    done = subprocess.run([*runner, str(program), "in.bin", "out.bin"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found, data = [], (folder / "out.bin").read_bytes()
    for t in like:
        expected = t.numpy()
        found.append(np.frombuffer(data, expected.dtype, expected.size).reshape(expected.shape))
        data = data[expected.nbytes :]
    assert not data
    return found


def check(fn, args, folder, others=None, rtol=2e-5, atol=1e-6, **options):
    """fn as C gives what fn gives, for the arguments it was exported with and for others."""
    args = args if isinstance(args, tuple) else (args,)
    settings = {k: options.pop(k) for k in ("compiler", "flags", "runner") if k in options}
    runner = settings.pop("runner", ())
    made = td.export.c(fn, args, folder, **options)
    program = compile_program(made, **settings)
    for given in [args] + ([others] if others else []):
        with td.no_grad():
            expected, _ = flatten(fn(*given))
        for got, t in zip(results_of(program, given, expected, runner), expected, strict=True):
            if t.dtype.is_floating and t.dtype.itemsize < 4:
                np.testing.assert_allclose(got.astype(np.float32), t.float().numpy(), rtol=2e-2, atol=2e-2)
            else:
                np.testing.assert_allclose(got, t.numpy(), rtol=rtol, atol=atol)
    return made
