"""A saved program runs in a process that has nothing of Python: run_plan.cc, linked with the runtime's core alone."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tandem as td

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def run_plan():
    """The program, built where the extension was: only linking is left to do."""
    folder = next((p.parent for p in sorted(ROOT.glob("build/*/build.ninja"))), None)
    ninja = Path(sys.executable).parent / "ninja"
    if folder is None or not ninja.exists():
        pytest.skip("needs the folder that the extension was built in")
    done = subprocess.run([ninja, "-C", folder, "run_plan"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "run_plan"


def call(run_plan, path, *arrays):
    names = {"float32": "f32", "int64": "i64"}
    arguments = []
    for i, array in enumerate(arrays):
        file = Path(path).with_suffix(f".{i}")
        file.write_bytes(np.ascontiguousarray(array).tobytes())
        arguments.append(f"{names[array.dtype.name]}:{','.join(map(str, array.shape))}:{file}")
    return subprocess.run([run_plan, path, *arguments], capture_output=True, text=True, timeout=300)


def results(done):
    assert done.returncode == 0, done.stderr
    found = []
    for line in done.stdout.splitlines():
        sizes, _, elements = line.partition(": ")
        shape = tuple(int(n) for n in sizes.split(",") if n)
        found.append(np.array(elements.split(), dtype=np.float64).reshape(shape))
    return found


def model():
    td.manual_seed(0)
    layers = td.nn.Sequential(td.nn.Linear(6, 32), td.nn.GELU(), td.nn.LayerNorm(32), td.nn.Linear(32, 5))

    def f(x, rows):
        y = td.softmax(layers(x), -1)
        total, _ = td.scan(lambda c, row: (c * 0.5 + row, None), td.zeros(5), y)
        return y[rows], total, td.argmax(y, -1)

    return f


def test_what_python_computes_comes_out(run_plan, tmp_path):
    f, path = model(), tmp_path / "model.plan"
    with td.no_grad():
        td.export.save_program(f, (td.ones(4, 6), td.zeros(3, dtype=td.int64)), path)
    for n in (4, 7, 64):
        x = np.random.default_rng(n).standard_normal((n, 6)).astype(np.float32)
        rows = np.array([n - 1, 0, 2])
        expected = f(td.tensor(x), td.tensor(rows))
        for actual, wanted in zip(results(call(run_plan, path, x, rows)), expected, strict=True):
            np.testing.assert_allclose(actual, wanted.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_errors_are_those_of_the_runtime(run_plan, tmp_path):
    f, path = model(), tmp_path / "model.plan"
    td.export.save_program(f, (td.ones(4, 6), td.zeros(3, dtype=td.int64)), path)
    x, rows = np.ones((4, 6), np.float32), np.array([0, 1, 9])
    assert "index 9 is out of range" in call(run_plan, path, x, rows).stderr
    assert "not for tensors of these sizes" in call(run_plan, path, np.ones((4, 5), np.float32), rows).stderr
    assert "input 1 is int64, and float32 was given" in call(run_plan, path, x, np.ones(3, np.float32)).stderr
    assert "takes 2 tensors" in call(run_plan, path, x).stderr
    content = path.read_bytes()
    half, renamed = content[: len(content) // 2], content.replace(b"slot", b"sloT", 1)
    for broken in (b"", content[:10], half, content[:-3], content + b"x", renamed):
        path.write_bytes(broken)
        done = call(run_plan, path, x, rows)
        assert done.returncode == 1 and ("damaged" in done.stderr or "no file of a plan" in done.stderr), done.stderr


def test_it_is_linked_without_python(run_plan):
    needed = subprocess.run(["ldd", run_plan], capture_output=True, text=True, check=True).stdout
    assert "python" not in needed, needed
    symbols = subprocess.run(["nm", "-u", run_plan], capture_output=True, text=True)
    if symbols.returncode == 0:
        assert not [s for s in symbols.stdout.split() if s.startswith(("Py", "_Py"))]
