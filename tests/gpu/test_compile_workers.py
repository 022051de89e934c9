"""Kernels for devices compiled in processes beside: the same code whatever happens to the processes. On a stand-in for a device
(tests/cuda_stand_in), with NVRTC; each script is a process of its own."""

import shutil
import signal
import subprocess
import sys
import time

import pytest

from tandem.codegen.cuda import assemble, nvrtc
from tandem.errors import DeviceError
from tests import cuda_stand_in


def has_nvrtc() -> bool:
    try:
        return bool(nvrtc.version())
    except DeviceError:
        return False


pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
    pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed (pip install nvidia-cuda-nvrtc)"),
]

HEAD = """
import os, signal, sys, time
os.sched_getaffinity = lambda pid: {0, 1, 2}  # two workers
import tandem as td
from tandem.codegen.cuda import compile, workers
from tandem.codegen.cuda import nvrtc
workers.LINGER, workers.LOOK = 1e9, 0.05  # however busy the machine is, none ends before it is told to
spawned, answers = [], []
real_fork, real_answered = workers.Parent.fork, workers.Worker._answered
def fork(self):
    worker = real_fork(self)
    spawned.append(worker)
    return worker
def answered(self, job, made):
    answers.append(made)
    real_answered(self, job, made)
workers.Parent.fork, workers.Worker._answered = fork, answered
def runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
def no_process_is_left():
    workers.LINGER = 0
    until = time.monotonic() + 200
    while time.monotonic() < until:
        time.sleep(0.05)
        with workers._lock:
            if not workers._workers and workers._parent is None:
                break
    for worker in spawned:
        while worker.pid and runs(worker.pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert not (worker.pid and runs(worker.pid))
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
x = td.ones(64, device="cuda")
def step():  # five kernels: lengths differ, so that they stay apart
    functions = [td.tanh, td.exp, td.sin, td.log1p, td.sigmoid]
    made = []
    for i, first in enumerate(functions):
        y = x[i:]
        for f in functions[: i + 1]:
            y = first(f(y)) * 0.5
        made.append(y)
    return made
"""

RUN = """
made = td.compile(step)()
assert [y.shape for y in made] == [(64,), (63,), (62,), (61,), (60,)]
"""


def run(script: str, tmp_path, **more) -> str:
    return cuda_stand_in.run(
        HEAD + script, **{"TANDEM_CACHE_DIR": str(tmp_path), "TANDEM_COMPILE_WORKERS": "1", **more}
    )


def code_in(folder) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (folder / "cuda").iterdir()}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Machine code as this process makes it."""
    folder = tmp_path_factory.mktemp("here")
    run(RUN + "assert not spawned and nvrtc.is_open() and no_process_is_left()", folder, TANDEM_COMPILE_WORKERS="0")
    return code_in(folder)


def test_workers_make_the_same_code_and_end(expected, tmp_path):
    run(
        """
workers.take = lambda jobs, ready: None  # all of it is left to them
"""
        + RUN
        + """
assert len(spawned) == 2, spawned
assert len(answers) >= 5 and all(a.startswith(b"\\x7fELF") for a in answers)
assert not compile._begun and not workers._waiting
assert no_process_is_left()
""",
        tmp_path,
    )
    assert code_in(tmp_path) == expected
    run(RUN + "assert not spawned and not nvrtc.is_open()", tmp_path)  # found on disk


FAULTS = {
    "killed in the middle": """
struck = []
real_send = workers.Worker.send
def send(self, job):
    real_send(self, job)
    if self.ready:
        os.kill(self.pid, signal.SIGKILL)
        struck.append(self.pid)
workers.Worker.send = send
""",
    "no answer": """
struck = []
real_send = workers.Worker.send
def send(self, job):
    if self.ready:
        os.kill(self.pid, signal.SIGSTOP)
        struck.append(self.pid)
        workers.PATIENCE = 0.2  # not before: one that starts may take long
    real_send(self, job)
workers.Worker.send = send
""",
    "garbage": "from tandem.codegen.cuda import assemble; assemble.__file__ = os.environ['GARBAGE']",
    "says that it failed": "workers.Worker._answered = lambda self, job, made: answered(self, job, b'')",
    "cannot be started": "sys.executable = '/nowhere/python'",
    "no library": "import tandem.codegen.cuda.libraries as l; real = l.candidates; l.candidates = lambda name: ('/nowhere.so',)",
}


GARBAGE = f"""
import _socket, os, runpy
assemble = runpy.run_path({assemble.__file__!r})
socket = _socket.socket(fileno=0)
while line := assemble["receive_line"](socket):
    os.write(line, b"nothing that is expected " * 1000)
"""


@pytest.mark.parametrize("fault", FAULTS)
def test_what_goes_wrong_with_workers_leaves_kernels_to_us(expected, tmp_path, fault):
    garbage = tmp_path / "garbage.py"
    garbage.write_text(GARBAGE)
    script = FAULTS[fault]
    if fault == "no library":  # the process itself finds it
        script += "; import ctypes; nvrtc._opened = ctypes.CDLL(real('nvrtc')[0])"
    run(
        script
        + RUN
        + f"assert bool(globals().get('struck', spawned)) == {fault != 'cannot be started'}\n"
        + "assert nvrtc.is_open() and no_process_is_left() and not compile._begun",
        tmp_path / "cache",
        GARBAGE=str(garbage),
    )
    assert code_in(tmp_path / "cache") == expected


def test_a_kernel_that_does_not_compile_is_told_as_without_workers(tmp_path):
    script = """
real = compile.source
compile.source = lambda kernel: real(kernel) + ("no such thing;" if "log1p" in kernel.name else "")
try:
    td.compile(step)()
except td.InternalError as error:
    print(error)
assert bool(spawned) == (os.environ["TANDEM_COMPILE_WORKERS"] != "0")
assert not compile._begun and not workers._waiting and no_process_is_left()
"""
    with_workers = run(script, tmp_path / "a")
    assert "does not compile" in with_workers and "no such thing" in with_workers
    assert with_workers == run(script, tmp_path / "b", TANDEM_COMPILE_WORKERS="0")


def test_a_program_that_cannot_be_made_leaves_nothing(tmp_path):
    run(
        """
import warnings
from tandem.program import driver
def fail(*args):
    assert compile._begun
    raise AssertionError("no such program")
driver.memory_of = fail
with warnings.catch_warnings(record=True):
    warnings.simplefilter("always")
    td.compile(step)()
assert spawned and not compile._begun and not workers._workers and no_process_is_left()
""",
        tmp_path,
    )


def test_a_child_does_not_use_its_parents_workers(tmp_path):
    run(
        """
with workers._lock:
    workers._start(2, 0)
job = workers.offer("extern \\"C\\" __global__ void k() {}", 90, "k", False, 0)
line = workers._workers[0].line
child = os.fork()
if child == 0:
    try:
        os.fstat(line)
    except OSError:
        os._exit(0 if not workers._workers and workers.offer("", 90, "k", False, 0) is None else 1)
    os._exit(2)
assert os.waitpid(child, 0)[1] == 0
while not job.done():
    workers.wait([job], 1)
assert job.image.startswith(b"\\x7fELF") and no_process_is_left()
""",
        tmp_path,
    )


def test_workers_do_not_outlive_a_process_that_is_killed(tmp_path):
    script = """
with workers._lock:
    workers._start(2, 0)
while not all(worker.receive() and worker.ready for worker in spawned):
    time.sleep(0.01)
print(workers._parent.pid, *[worker.pid for worker in spawned], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    variables = cuda_stand_in.environment(TANDEM_CACHE_DIR=str(tmp_path), TANDEM_COMPILE_WORKERS="1")
    done = subprocess.run(
        [sys.executable, "-c", HEAD + script], env=variables, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 3
    until = time.monotonic() + 200
    while any(_runs(pid) for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_the_worker_imports_nothing_heavy():
    code = f"import runpy, sys; runpy.run_path({assemble.__file__!r}); print([m for m in ('numpy', 'tandem') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_code_is_the_same_with_all_declarations(monkeypatch):
    """--minimal leaves out declarations; nothing of ours needs them."""
    source = (
        'extern "C" __global__ void k(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] = expf(x[threadIdx.x]); }'
    )
    made = nvrtc.compile_source(source, 90, "k")
    real = assemble.options
    monkeypatch.setattr(assemble, "options", lambda *args: [o for o in real(*args) if o != "--minimal"])
    assert nvrtc.compile_source(source, 90, "k") == made
