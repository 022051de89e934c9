import os
import pathlib
import subprocess
import sys
import threading

import pytest

import tandem as td
from tandem.switches import CACHE, CHECK, DEBUG, PRINT, SWITCHES, cache_dir, switches

ROOT = pathlib.Path(__file__).parent.parent


def run(code: str, **environment: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


def test_a_scope_sets_and_restores():
    before = DEBUG.value
    with switches(DEBUG=4, PRINT="simplify, fuse"):
        assert DEBUG >= 3
        assert "fuse" in PRINT
        assert "plan" not in PRINT
        with switches(PRINT="all"):
            assert "plan" in PRINT
        assert "plan" not in PRINT
    assert before == DEBUG.value
    assert not PRINT


def test_a_scope_is_left_by_an_exception_too():
    with pytest.raises(KeyError), switches(CHECK=0):
        raise KeyError
    assert CHECK


def test_one_scope_object_can_be_entered_twice():
    scope = switches(DEBUG=3)
    with scope, scope:
        assert DEBUG.value == 3
    assert DEBUG.value != 3


def test_scopes_of_threads_that_overlap_leave_nothing_behind():
    before = DEBUG.value, td.get_num_threads()
    entered, may_leave = threading.Event(), threading.Event()

    def inside():
        with switches(DEBUG=4, NUM_THREADS=1):
            entered.set()
            may_leave.wait(300)

    with switches(DEBUG=3, NUM_THREADS=2):
        thread = threading.Thread(target=inside)
        thread.start()
        assert entered.wait(300)
    assert (4, 1) == (DEBUG.value, td.get_num_threads())  # it is not left yet
    may_leave.set()
    thread.join()
    assert before == (DEBUG.value, td.get_num_threads())


def test_zero_means_off_for_every_switch():
    for switch in SWITCHES.values():
        with switches(**{switch.name: "0"}):
            assert not switch


def test_an_unknown_switch_is_refused_with_the_list():
    with pytest.raises(ValueError, match=r"(?s)there is no switch 'DEUBG'.*DEBUG"):
        switches(DEUBG=1)


def test_a_wrong_value_is_refused_and_changes_nothing():
    with pytest.raises(ValueError, match="TANDEM_DEBUG is 'x'; it must be an integer"):
        switches(DEBUG="x")
    assert "TANDEM_DEBUG is 'much'" in run("import tandem.switches", TANDEM_DEBUG="much").stderr


def test_the_environment_is_read():
    code = "from tandem.switches import DEBUG, SKIP; print(DEBUG.value, 'fuse' in SKIP)"
    assert run(code, TANDEM_DEBUG="3", TANDEM_SKIP="simplify,fuse").stdout.strip() == "3 True"


def test_the_kernel_cache_can_be_moved_and_switched_off(monkeypatch):
    with switches(CACHE=1, CACHE_DIR="/somewhere"):
        assert cache_dir() == "/somewhere"
        with switches(CACHE=0):
            assert cache_dir() is None
        assert CACHE
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    with switches(CACHE=1, CACHE_DIR=""):
        assert os.path.join("/xdg", "tandem") == cache_dir()


def test_the_page_about_switches_is_current():
    code = "import runpy; print(runpy.run_path('tools/switch_table.py')['render'](), end='')"
    made = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert made == (ROOT / "docs" / "switches.md").read_text(), "run `make docs`"


def test_levels_of_debug_show_what_they_say(capsys):
    import tandem as td

    shown = []
    functions = [td.sin, td.cos, td.exp2, td.sinh, td.cosh]  # kernels are compiled once
    for level, function in enumerate(functions):
        with switches(DEBUG=level, CACHE=0):
            td.compile(lambda x, function=function: (function(x) * 2.5 + 0.5).sqrt().sum())(td.ones(3))
        shown.append(capsys.readouterr().out)
    assert shown[0] == ""
    assert "steps" not in shown[1]
    assert "tandem: program: " in shown[2] and " = input()" not in shown[2]
    assert " = input()" in shown[3] and "define void @kernel" not in shown[3]
    assert "compiled in" in shown[4] and "define void @kernel" in shown[4]


def test_the_runtime_follows_switches_in_scopes():
    """Each has an effect that can be seen without a device, or is set where the runtime looks."""
    import numpy as np

    import tandem as td

    names = [name for name, switch in SWITCHES.items() if switch.native is not None]
    assert names == ["ISA", "WINOGRAD", "TUNE", "AHEAD", "LAUNCHER", "EARLY", "ORDER"]
    assert 'getenv("TANDEM_' not in "".join(
        p.read_text() for p in (ROOT / "src").rglob("*.cc") if p.name != "driver.cc"
    )
    best = td._runtime.library_isa()
    with switches(ISA="baseline"):
        assert td._runtime.library_isa() == "baseline"
        x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
        np.testing.assert_allclose((td.tensor(x) @ td.tensor(x).T).numpy(), x @ x.T)
    assert td._runtime.library_isa() == best


def test_an_unknown_instruction_set_is_refused_before_anything_changes():
    with pytest.raises(ValueError, match=r"(?s)TANDEM_ISA is 'sse9'.*fix: 'baseline', 'avx2'"):
        switches(CHECK=0, ISA="sse9")
    assert CHECK


def test_threads_in_scopes():
    import tandem as td

    before = td.get_num_threads()
    try:
        td.set_num_threads(3)
        with switches(NUM_THREADS=2):
            assert td.get_num_threads() == 2
            with switches(NUM_THREADS=1):
                assert td.get_num_threads() == 1
            assert td.get_num_threads() == 2
        assert td.get_num_threads() == 3
        with switches(CHECK=1):
            td.set_num_threads(2)
        assert td.get_num_threads() == 2
    finally:
        td.set_num_threads(before)
    code = "import tandem as td; print(td.get_num_threads())"
    assert run(code, TANDEM_NUM_THREADS="5").stdout.strip() == "5"
    assert run(code, OMP_NUM_THREADS="3", TANDEM_NUM_THREADS="0").stdout.strip() == "3"
    assert run(code, OMP_NUM_THREADS="3", TANDEM_NUM_THREADS="2").stdout.strip() == "2"


def test_winograd_in_scopes():
    """The two methods round differently, which tells them apart."""
    import tandem as td

    td.manual_seed(0)
    x, w = td.randn(2, 64, 24, 24), td.randn(64, 64, 3, 3)

    def conv():
        return td.nn.functional.conv2d(x, w, padding=1).numpy()

    on = conv()
    with switches(WINOGRAD=0):
        off = conv()
    assert (on == conv()).all()
    assert abs(on - off).max() < 1e-2
