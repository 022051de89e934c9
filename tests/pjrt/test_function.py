"""Functions on plugins with PJRT's C interface: a stand-in written in C runs them; a TPU's own compiler accepts them where libtpu
is installed. No accelerator is asked for."""

from __future__ import annotations

import ctypes
import gc
import shutil
import subprocess

import numpy as np
import pytest

import tandem as td
from tandem.errors import DeviceError
from tests.pjrt.plugins import SOURCE


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    path = tmp_path_factory.mktemp("pjrt") / "stand_in.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", path, SOURCE], check=True)
    return str(path)


def alive(plugin: str) -> int:
    gc.collect()
    return ctypes.c_int64.in_dll(ctypes.CDLL(plugin), "alive").value


def test_a_function(plugin):
    fn = td.compile(lambda x, y: (x + y) * y - x, device=f"pjrt:{plugin}")
    for shape in ((3,), (2, 4), (3,), ()):
        x, y = td.randn(shape), td.randn(shape)
        np.testing.assert_allclose(fn(x, y).numpy(), ((x + y) * y - x).numpy(), rtol=1e-6)
    assert len(fn._programs) == 3, "one program for each set of sizes"


def test_results_come_in_their_containers(plugin):
    fn = td.compile(lambda x: {"sum": x + x, "parts": (x * x, [-x])}, device=f"pjrt:{plugin}")
    found = fn(td.ones(3) * 3)
    assert found["sum"].tolist() == [6.0] * 3 and found["parts"][0].tolist() == [9.0] * 3
    assert found["parts"][1][0].tolist() == [-3.0] * 3


def test_weights_are_sent_once_and_again_when_they_change(plugin):
    class Scale(td.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = td.nn.Parameter(td.tensor([1.0, 2.0, 3.0]))

        def forward(self, x):
            return x * self.weight

    model = Scale()
    fn = td.compile(model, device=f"pjrt:{plugin}")
    assert fn(td.ones(3)).tolist() == [1.0, 2.0, 3.0]
    (first,) = [b for _, _, b in fn._sent.values()]
    assert fn(td.ones(3)).tolist() == [1.0, 2.0, 3.0] and [b for _, _, b in fn._sent.values()] == [first]
    with td.no_grad():
        model.weight.mul_(2)
    assert fn(td.ones(3)).tolist() == [2.0, 4.0, 6.0]


def test_nothing_stays_behind(plugin):
    before = alive(plugin)
    fn = td.compile(lambda x: x * x + x, device=f"pjrt:{plugin}")
    for _ in range(5):
        fn(td.ones(4))
    with pytest.raises(DeviceError):
        td.compile(td.exp, device=f"pjrt:{plugin}")(td.ones(4))
    del fn
    assert alive(plugin) == before
