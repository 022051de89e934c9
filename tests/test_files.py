"""Files that users name: whatever happens while one is written, the old one or the new one is there, whole."""

import ast
import json
import pathlib
import stat

import pytest

from tandem import files
from tests.processes import run_script

PACKAGE = pathlib.Path(files.__file__).parent

WRITERS = """
import os, resource, signal, sys
import tandem as td
from tandem import files
from tandem.training.history import History
from tandem.training.logs import CSVLog
from tandem.training.page import write_page

path = os.path.join(os.getcwd(), "file")
fn = td.compile(lambda x: (x * 2).sum())
fn(td.ones(3))
with td.profile() as profile:
    fn(td.ones(3))
history = History()
history.epochs.append({"epoch": 1, "train_loss": 2.0})
table = CSVLog(path)

def log():
    table.write(0, {f"column {len(table._columns)}": 1})

WRITERS = {
    "state": lambda: td.save({"a": td.ones(300)}, path),
    "graph": lambda: fn.graph().save(path),
    "deferred graph": lambda: deferred.save(path),
    "view": lambda: fn.graph().view(path),
    "model": lambda: td.export.save(lambda x: x + 1, td.ones(300), path),
    "history": lambda: history.save(path),
    "page": lambda: write_page(path, history),
    "timeline": lambda: profile.save(path),
    "table": log,
}
deferred = td.Graph()
with deferred.as_default():
    td.placeholder(td.float32, (3,)) * 2
"""

FULL = """
for name, write in WRITERS.items():
    write()
    before = open(path, "rb").read()
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY))
    try:
        write()
    except OSError as error:
        assert path in str(error), (name, error)
    else:
        raise AssertionError(f"{name}: no error")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert before == open(path, "rb").read(), name
    assert ["file", "script.py"] == sorted(os.listdir()), (name, os.listdir())
"""

KILLED = """
for name, write in WRITERS.items():
    write()
    for at in ("rename", "write"):
        before = open(path, "rb").read()
        child = os.fork()
        if not child:
            if at == "write":  # the first byte ends it
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
            else:
                os.replace = lambda *a, **k: os.kill(os.getpid(), 9)
            write()
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        assert os.WIFSIGNALED(status), (name, at, status)
        assert before == open(path, "rb").read(), (name, at)
        assert 3 == len(os.listdir()), (name, os.listdir())
    write()
    assert ["file", "script.py"] == sorted(os.listdir()), (name, os.listdir())  # leftovers are gone
"""


@pytest.mark.parametrize("how", [FULL, KILLED], ids=["full disk", "killed"])
def test_a_write_that_does_not_end_leaves_the_old_file(tmp_path, how):
    done = run_script(WRITERS + how, tmp_path)
    assert done.returncode == 0, done.stderr


def test_pipes_and_devices_are_written_into(tmp_path):
    files.write("/dev/null", "text")
    assert stat.S_ISCHR(pathlib.Path("/dev/null").stat().st_mode)


def test_a_link_stays_a_link_and_a_file_keeps_its_mode(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    files.write(link, json.dumps([1]))
    assert link.is_symlink() and "[1]" == target.read_text()
    assert 0o640 == stat.S_IMODE(target.stat().st_mode)


def test_nothing_else_opens_files_to_write_them_anew():
    """Logs are added to; the cache has its own rules (tandem/machine/disk_cache.py); a worker answers on the line that it is given;
    and shared memory is no file."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                modes = [a.value for a in node.args[1:] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                if (name == "open" and any(set(m) & set("wx") for m in modes)) or name in (
                    "write_text",
                    "write_bytes",
                    "tofile",
                ):
                    found.add(str(path.relative_to(PACKAGE)))
    assert {
        "files.py",
        "machine/disk_cache.py",
        "codegen/cuda/assemble.py",
        "checkpoint/writer.py",
        "multiprocessing/space.py",
    } == found
