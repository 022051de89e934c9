"""tools/build_progress.py: how far a build is."""

import importlib.util
import io
import pathlib
import sys

PATH = pathlib.Path(__file__).resolve().parent.parent / "tools" / "build_progress.py"
specification = importlib.util.spec_from_file_location("build_progress", PATH)
build_progress = importlib.util.module_from_spec(specification)
specification.loader.exec_module(build_progress)


def run(program: str, out=None):
    out = out or io.StringIO()
    return build_progress.main([sys.executable, "-c", program], out), out.getvalue()


def test_tenths_are_told_and_the_rest_is_left_out():
    code, text = run("for i in range(1, 101): print(f'noise\\n[{i}/100] Building CXX object a{i}.o')")
    assert code == 0
    assert text.count("building:") == 11 and "building: 50/100" in text and "noise" not in text and "built in" in text


def test_a_terminal_has_one_line():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    _, text = run("print('[3/7] Building CXX object src/tensor.cc.o')", Terminal())
    assert "\r" in text and "building: 3/7" in text and "tensor.cc.o" in text


def test_a_failure_shows_what_was_said():
    code, text = run("import sys; print('[1/2] x'); print('error: no such file'); sys.exit(3)")
    assert code == 3 and "error: no such file" in text


def test_everything_is_shown_when_asked_for(monkeypatch):
    monkeypatch.setenv("TANDEM_BUILD_VERBOSE", "1")
    _, text = run("print('noise')")
    assert "noise" in text
