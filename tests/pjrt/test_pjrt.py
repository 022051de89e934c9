"""Functions on plugins with PJRT's C interface: a stand-in written in C runs them; a TPU's own compiler accepts them where libtpu
is installed. No accelerator is asked for."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import tandem as td
from tandem.errors import DeviceError, UnsupportedError, ValueRangeError

SOURCE = pathlib.Path(__file__).parent / "stand_in.c"


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


def test_errors_of_the_plugin_are_told(plugin):
    with pytest.raises(
        DeviceError, match=r"Client_Compile of stand_in\.so failed: the stand-in does not know stablehlo\.exp"
    ):
        td.compile(td.exp, device=f"pjrt:{plugin}")(td.ones(3))
    with pytest.raises(DeviceError, match="float32 alone"):
        td.compile(lambda x: x + x, device=f"pjrt:{plugin}")(td.ones(3, dtype=td.int64))
    with pytest.raises(UnsupportedError, match="by position"):
        td.compile(lambda x: x + x, device=f"pjrt:{plugin}")(x=td.ones(3))


def test_what_is_no_plugin(tmp_path):
    with pytest.raises(ValueRangeError, match="no file and no known plugin"):
        td.compile(td.exp, device="pjrt:nowhere")(td.ones(1))
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(DeviceError, match="is no PJRT plugin"):
        td.compile(td.exp, device=f"pjrt:{tmp_path / 'text.so'}")(td.ones(1))
    with pytest.raises(ValueRangeError, match="device"):
        td.compile(td.exp, device="abacus")


_AHEAD = """
import tandem as td
from tandem.pjrt import compile_ahead, open_plugin

plugin = open_plugin("tpu")

def accepted(fn, *args):
    return compile_ahead(plugin, "v5e:2x2x1", td.export.stablehlo(fn, args).text)

assert accepted(lambda x: td.relu(x @ x) + 1, td.ones(8, 8)) == 1
model = td.nn.Sequential(td.nn.Conv2d(1, 4, 3), td.nn.BatchNorm2d(4), td.nn.ReLU(), td.nn.Flatten(), td.nn.Linear(144, 10)).eval()
assert accepted(model, td.randn(2, 1, 8, 8)) == 1
assert accepted(td.models.GPT2(vocabulary=50, context=16, layers=1, heads=2, width=16).eval(), td.ones(1, 8, dtype=td.int64)) == 1
assert accepted(lambda x: td.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2), (td.tensor(0), x)), td.ones(3)) == 2
assert accepted(td.func.grad(lambda x: (x.sin() * x).sum()), td.ones(4)) == 1
try:
    compile_ahead(plugin, "v5e:2x2x1", "nonsense")
except td.DeviceError:
    print("accepted")
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")
def test_the_compiler_of_a_tpu_accepts_programs():
    environment = {**os.environ, "TPU_SKIP_MDS_QUERY": "1"}
    done = subprocess.run([sys.executable, "-c", _AHEAD], env=environment, capture_output=True, text=True, timeout=300)
    assert "accepted" in done.stdout, done.stderr[-3000:]
