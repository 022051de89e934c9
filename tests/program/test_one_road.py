"""Whatever door a graph comes in by, it gets the same: one test for each property, one case for each door (doors.py)."""

import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import tandem as td
from tandem.codegen import workers
from tandem.codegen.cpu import target
from tandem.errors import CompileWarning
from tandem.program import driver
from tandem.transforms import traced
from tests import cuda_stand_in
from tests.gpu.test_stand_in import HEAD
from tests.program.doors import DOORS, data, door, layers

ROOT = pathlib.Path(__file__).parents[2]
every_door = pytest.mark.parametrize("name", DOORS)


@pytest.fixture
def fresh(monkeypatch):
    """Nothing is found on disk, or from another test."""
    monkeypatch.setattr(traced, "_functions", {})
    with td.switches(CACHE=0):
        yield


def expected(name: str, steps: int = 1) -> list:
    """What operators give one by one."""
    if name in ("compile", "session"):
        with td.switches(EAGER=1):
            plain = door("compile")
            return [plain.step() for _ in range(steps)]
    x, w = (t.numpy() for t in data("cpu"))
    return [layers(x, w, np).reshape(-1).tolist()] * steps


@every_door
def test_results_are_those_of_the_operators_one_by_one(name, fresh):
    made = door(name)
    for value in expected(name, 3):
        np.testing.assert_allclose(made.step(), value, rtol=2e-5, atol=1e-6)


@every_door
def test_a_program_goes_through_the_passes(name, fresh, monkeypatch):
    seen = []
    run = driver.run_pipeline
    monkeypatch.setattr(driver, "run_pipeline", lambda graph, *rest: seen.append(len(graph.nodes)) or run(graph, *rest))
    door(name).step()
    assert max(seen) > 20


@every_door
def test_a_second_call_finds_the_plan(name, fresh, monkeypatch):
    made = door(name)
    made.step()
    made.step()  # a training step may meet new memory the second time
    monkeypatch.setattr(driver, "compile", None)
    monkeypatch.setattr("tandem.tracing.compile.compile_program", None)
    monkeypatch.setattr("tandem.tracing.program.compile_program", None)
    made.step()


@every_door
def test_explain_tells_of_its_programs_and_memory_of_what_they_take(name, fresh):
    made = door(name)
    made.step()
    text = made.explain()
    assert "after passes" in text and "memory:" in text and "lower" in text
    assert made.memory()["peak"] > 0


@every_door
def test_a_memory_budget_is_kept(name, fresh):
    plain, small = door(name), door(name, memory_budget=0.7)
    first = plain.step()
    np.testing.assert_allclose(small.step(), first, rtol=1e-5, atol=1e-6)
    assert small.memory()["peak"] < plain.memory()["peak"]


@every_door
def test_compile_workers_are_asked(name, fresh, monkeypatch):
    asked = []
    ahead = workers.compiling_ahead
    monkeypatch.setattr(target, "compiling_ahead", lambda worthwhile: asked.append(worthwhile) or ahead(False))
    door(name).step()
    assert asked


@every_door
@pytest.mark.filterwarnings("ignore::tandem.errors.CompileWarning")
def test_a_mistake_of_the_compiler_costs_speed_alone(name, fresh, monkeypatch):
    def broken(*_, **__):
        raise AssertionError("a mistake planted here")

    monkeypatch.setattr(driver, "_simplify", broken)
    made = door(name)
    with pytest.warns(CompileWarning, match="a mistake planted here"):
        got = made.step()
    np.testing.assert_allclose(got, expected(name)[0], rtol=2e-5, atol=1e-6)


SECOND = """
import sys
sys.path.insert(0, {root!r})
from tests.program.doors import door
made = door({name!r})
print([f"{{v:.5f}}" for v in made.step()])
print("load" in made.explain(), "lower" in made.explain())
"""


@every_door
def test_a_second_process_finds_the_program_on_disk(name, tmp_path):
    environment = {**os.environ, "TANDEM_CACHE_DIR": str(tmp_path), "TANDEM_CACHE": "1"}
    script = SECOND.format(root=str(ROOT), name=name)
    runs = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        runs.append(done.stdout.splitlines())
    (first, made), (second, found) = runs
    assert (first, made, found) == (second, "False True", "True False")


REPLAY = """
import sys
sys.path.insert(0, {root!r})
from tests.program.doors import door
made = door({name!r}, "cuda")
for _ in range(6):
    made.step()
before = counts()
made.step()
after = counts()
print(after["graphs"] - before["graphs"])
"""


@every_door
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_device_replays_it_as_a_graph(name, tmp_path):
    more = {"TANDEM_CACHE_DIR": str(tmp_path), "TANDEM_COMPILE_WORKERS": "0", "TANDEM_LAUNCHER": "0"}
    printed = cuda_stand_in.run(HEAD + REPLAY.format(root=str(ROOT), name=name), **more)
    assert int(printed) >= 1


def test_a_run_that_fails_writes_nothing():
    """Steps that may fail come first, whatever the program came from."""
    bad = td.tensor([0, 7])
    w = td.zeros(3)
    with pytest.raises(td.IndexRangeError):
        td.compile(lambda: w.add_(1.0).add_(td.ones(3)[bad].sum()))()
    graph = td.Graph()
    with graph:
        v = td.Variable(np.zeros(3, np.float32))
        i = td.placeholder(td.int64, (None,), name="i")
        update = td.assign_add(v, td.ones(3) + v[i].sum())
        start = td.global_variables_initializer()
    session = td.Session(graph)
    session.run(start)
    with pytest.raises(td.IndexRangeError):
        session.run(update, {i: [0, 7]})
    assert session.run(v).tolist() == [0, 0, 0]


def test_nothing_but_the_driver_calls_passes_and_lowering():
    folder = ROOT / "tandem"
    allowed = {"program", "passes", "codegen"}
    for path in folder.rglob("*.py"):
        if path.relative_to(folder).parts[0] in allowed:
            continue
        text = path.read_text()
        assert "run_pipeline" not in text and "import lower" not in text, path
