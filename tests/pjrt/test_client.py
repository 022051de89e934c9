"""Plugins and their compilers."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys

import pytest

import tandem as td
from tandem.errors import DeviceError, UnsupportedError, ValueRangeError
from tests.pjrt.plugins import SOURCE


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    path = tmp_path_factory.mktemp("pjrt") / "stand_in.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", path, SOURCE], check=True)
    return str(path)


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
