import os
import pathlib
import subprocess
import sys

import pytest

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
    with switches(CACHE_DIR="/somewhere"):
        assert cache_dir() == "/somewhere"
        with switches(CACHE=0):
            assert cache_dir() is None
    assert CACHE
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    with switches(CACHE_DIR=""):
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
