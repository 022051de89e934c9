"""Files of a program in C."""

from __future__ import annotations

import subprocess

import pytest

import tandem as td
from tests.export.c99.programs import Small
from tests.export.c_programs import COMPILER

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")


@needs_compiler
@pytest.mark.slow
def test_cmake_builds_it_and_its_test_passes(tmp_path):
    td.export.c(Small().eval(), td.randn(1, 2, 7, 6), tmp_path)
    for command in ("cmake -S . -B made", "cmake --build made", "ctest --test-dir made"):
        done = subprocess.run(command.split(), cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
