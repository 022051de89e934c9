"""When the compiler's library is loaded; the files it depends on are in test_prebuilt.py."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def run(program: str, tmp_path) -> str:
    (tmp_path / "kernels").mkdir()  # so that nothing begins at import
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TANDEM_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_thread_that_loads_the_compiler_imports_no_other_part_of_the_package(tmp_path):
    program = """
import sys
import tandem
before = set(sys.modules)
tandem.machine.preload._warm_up()
print(sorted(name for name in set(sys.modules) - before if name.startswith("tandem")))
"""
    assert run(program, tmp_path).strip() == "['tandem.llvm', 'tandem.llvm.assemble']"


def test_first_calls_of_several_threads_import_in_one_order(tmp_path):
    program = """
import threading
import tandem as td
from tandem.machine import preload
x = td.ones(3)
step = td.compile(lambda x: (x * 2).sum())
barrier = threading.Barrier(4)
wrong = []

def first(work):
    barrier.wait()
    try:
        assert float(work()) == 6.0
    except BaseException as error:
        wrong.append(error)

works = [lambda: step(x), lambda: (x + x).sum(), lambda: step(x), lambda: x.sum() * 2]
threads = [threading.Thread(target=first, args=(work,)) for work in works]
[t.start() for t in threads]
preload.begin_compiling()
[t.join() for t in threads]
assert not wrong, wrong
"""
    run(program, tmp_path)
