import importlib
import io
import logging
import os
import pickle
import subprocess
import sys
import textwrap
import traceback

import pytest

from tandem import errors
from tandem.errors import InternalError, ShapeError, Source, TandemError, from_runtime, hide_frames, user_source
from tandem.switches import switches


class Matmul:
    name = "matmul"


def package_function(body: str):
    """A function `call` that believes to be in the package, made from source."""
    scope = {"errors": errors}
    code = compile(textwrap.dedent(body), os.path.join(os.path.dirname(errors.__file__), "ops", "made.py"), "exec")
    exec(code, scope)
    return scope["call"]


raise_in_package = package_function(
    """
    def call(f=None):
        return inner(f)

    def inner(f):
        if f is not None:
            return f()
        raise errors.ShapeError("matmul", "sizes differ")
    """
)


def test_the_text_names_op_rule_fix_and_line():
    def loss():
        return ShapeError(Matmul(), "a is (2, 3) and b is (4, 5)", fix="pass b.T")

    error, line = loss(), loss.__code__.co_firstlineno + 1
    where = f"{os.path.relpath(__file__)}:{line} in loss"
    assert str(error) == f"matmul: a is (2, 3) and b is (4, 5)\n  fix: pass b.T\n  at {where}"
    assert (error.op, error.fix) == ("matmul", "pass b.T")
    assert (__file__, line, "loss") == error.source
    assert error.rule == "a is (2, 3) and b is (4, 5)"


def test_parts_that_are_absent_leave_no_trace():
    assert str(ShapeError(None, "bad", source=None)).splitlines()[0] == "bad"
    assert len(str(ShapeError("add", "bad")).splitlines()) == 2
    assert str(Source("x.py", 3, "<module>")) == "x.py:3"
    assert Source("/a/b/x.py", 3, "f").short == "x.py:3"


def test_the_line_is_the_users_not_ours():
    with pytest.raises(ShapeError) as caught:
        raise_in_package()
    assert __file__ == caught.value.source.file
    assert caught.value.source.function == "test_the_line_is_the_users_not_ours"


def test_user_source_of_a_method_names_its_class():
    class Model:
        def forward(self):
            return user_source()

    assert Model().forward().function == "Model.forward"


@pytest.mark.parametrize(
    "name, builtin",
    [
        ("ShapeError", ValueError),
        ("DTypeError", TypeError),
        ("IndexRangeError", IndexError),
        ("ValueRangeError", ValueError),
        ("DeviceError", RuntimeError),
        ("AutogradError", RuntimeError),
        ("OutOfMemoryError", MemoryError),
        ("UnsupportedError", NotImplementedError),
    ],
)
def test_each_error_is_also_the_builtin_that_users_catch(name, builtin):
    error = getattr(errors, name)("add", "bad")
    assert isinstance(error, TandemError)
    assert isinstance(error, builtin)
    assert f"tandem.{name}" == f"{type(error).__module__}.{type(error).__qualname__}"


def test_internal_error_is_not_the_callers_fault_and_says_what_to_report():
    error = InternalError("add", "plan without kernels")
    assert not isinstance(error, TandemError)
    assert isinstance(error, RuntimeError)
    assert "please report" in str(error)


def test_errors_survive_pickling():
    error = ShapeError("add", "bad", fix="reshape")
    again = pickle.loads(pickle.dumps(error))
    assert type(error) is type(again)
    assert str(error) == str(again)
    assert error.source == again.source


def test_runtime_errors_become_their_python_class():
    error = from_runtime("Shape", "matmul: sizes 3 and 4 differ")
    assert isinstance(error, ShapeError)
    assert (error.op, error.rule) == ("matmul", "sizes 3 and 4 differ")
    assert from_runtime("Memory", "out of memory: 3 GiB").op is None
    assert isinstance(from_runtime("Internal", "x.cc:3: failed"), InternalError)


def frames_after_hiding(call):
    try:
        call()
    except Exception as error:
        hide_frames(error)
        return error, [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_our_frames_leave_the_traceback_and_user_frames_stay():
    def callback():
        raise_in_package()

    error, names = frames_after_hiding(lambda: raise_in_package(callback))
    assert names == ["frames_after_hiding", "<lambda>", "callback"]
    assert any("TANDEM_TRACEBACK=full" in note for note in error.__notes__)
    hide_frames(error)
    assert len(error.__notes__) == 1


def test_full_tracebacks_and_other_exceptions_are_left_alone():
    with switches(TRACEBACK="full"):
        _, names = frames_after_hiding(raise_in_package)
    assert names == ["frames_after_hiding", "call", "inner"]
    _, names = frames_after_hiding(lambda: raise_in_package(lambda: 1 / 0))
    assert names == ["frames_after_hiding", "<lambda>", "call", "inner", "<lambda>"]


PROGRAM = """
from tandem.errors import install_hook
from tests.errors.test_errors import raise_in_package
install_hook()
def loss():
    raise_in_package()
loss()
"""


def test_an_uncaught_error_is_printed_without_our_frames(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TANDEM_TRACEBACK": "0"}
    run = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 1
    assert "made.py" not in run.stderr
    assert "tandem.ShapeError: matmul: sizes differ\n  at train.py:6 in loss\n" in run.stderr


def test_a_program_from_standard_input_has_lines_too():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run([sys.executable, "-"], input=PROGRAM, env=environment, capture_output=True, text=True)
    assert "at <stdin>:6 in loss" in run.stderr


def test_none_and_what_cannot_be_called_are_refused_by_name():
    import tandem as td

    with pytest.raises(td.DTypeError, match="tensor: data is None"):
        td.tensor(None)
    with pytest.raises(td.DTypeError, match="compile: a int cannot be called"):
        td.compile(3)


# -- tracebacks by others than the interpreter

FAILING = """
import tandem as td

def mine():
    return td.nn.Sequential(td.nn.Linear(3, 4))(td.ones(2, 5))
"""


def test_logging_shows_no_frames_of_ours(tmp_path, monkeypatch):
    (tmp_path / "failing.py").write_text(FAILING)
    monkeypatch.syspath_prepend(str(tmp_path))
    out = io.StringIO()
    logger = logging.getLogger("of-a-user")
    logger.addHandler(logging.StreamHandler(out))
    logger.propagate = False
    try:
        importlib.import_module("failing").mine()
    except TandemError:
        logger.exception("failed")
    assert "failing.py" in out.getvalue()
    assert "linear" in out.getvalue()
    assert "tandem/nn" not in out.getvalue()


def test_pytest_shows_no_frames_of_ours(tmp_path):
    (tmp_path / "test_failing.py").write_text(FAILING + "\n\ndef test_it():\n    mine()\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)]
    shown = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout
    assert "test_failing.py:5" in shown
    assert "tandem/nn" not in shown
    full = {**os.environ, "TANDEM_TRACEBACK": "full"}
    shown = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=full).stdout
    assert "tandem/nn" in shown


def test_ipython_shows_no_frames_of_ours_of_a_file(tmp_path):
    pytest.importorskip("IPython")
    (tmp_path / "failing.py").write_text(f"{FAILING}\nmine()\n")
    program = "from IPython import start_ipython; start_ipython(['--no-banner', '--colors=NoColor', 'failing.py'])"
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    shown = done.stdout + done.stderr
    assert "mine()" in shown
    assert "ShapeError" in shown
    assert "tandem/nn" not in shown


def test_ipython_shows_no_frames_of_ours(capsys):
    pytest.importorskip("IPython")
    program = (
        "from IPython.core.interactiveshell import InteractiveShell\nshell = InteractiveShell.instance()\n"
        f"shell.colors = 'nocolor'\nshell.run_cell('''{FAILING}\nmine()''')\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
    assert "mine()" in shown
    assert "ShapeError" in shown
    assert "tandem/nn" not in shown


def test_errors_are_the_same_where_the_working_directory_was_removed(tmp_path):
    script = "import os, tandem as td\nos.rmdir(os.getcwd())\ntd.ones(2) @ td.ones(3)"
    folder = tmp_path / "gone"
    folder.mkdir()
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=folder).stderr
    assert "ShapeError: matmul" in shown
