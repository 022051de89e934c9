"""Kernels of the C99 target, compiled by the system's compiler. As a plugin of pytest (-p tests.codegen.c.compiled), all generated
kernels of a test run are such."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tandem.codegen.c.render import render

COMPILER = shutil.which("cc")
FLAGS = ["-std=c99", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable"]


@functools.cache
def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="tandem-c99-"))


def build(text: str, name: str) -> ctypes.CDLL:
    source, made = folder() / f"{name}.c", folder() / f"{name}.so"
    source.write_text(text)
    done = subprocess.run([COMPILER, *FLAGS, "-o", made, source, "-lm"], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}\n{text}"
    return ctypes.CDLL(str(made))


_loaded: dict[str, tuple] = {}


def address(kernel) -> int:
    if kernel.key not in _loaded:
        library = build(render(kernel), kernel.key)
        _loaded[kernel.key] = library, ctypes.cast(library.kernel, ctypes.c_void_p).value
    return _loaded[kernel.key][1]


def pytest_configure(config):
    from tandem.codegen import compile

    compile.address = address


def pytest_unconfigure(config):
    print(f"{len(_loaded)} kernels were compiled as C")
    if not os.environ.get("KEEP_C"):
        shutil.rmtree(folder())
