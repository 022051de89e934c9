"""What kernels are compiled for."""

import os

from tandem.codegen import compile


def test_an_emulated_processor_has_no_flags_of_the_real_one(monkeypatch):
    """/proc/cpuinfo tells of the processor that emulates."""
    real = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*real[:4], "aarch64")))
    if real.machine == "x86_64":
        assert {"fp", "asimd"} == compile.cpu_flags.__wrapped__()
    else:
        assert "asimd" in compile.cpu_flags.__wrapped__()
