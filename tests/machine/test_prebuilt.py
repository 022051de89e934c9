"""Kernels that come with the package."""

import os
import pathlib
import random
import subprocess
import sys

import pytest

import tandem as td
from tandem import _runtime
from tandem.codegen.levels import LEVELS
from tandem.codegen.loops import RENDERED
from tandem.machine import prebuilt
from tandem.machine.preload import prebuilt_path
from tandem.switches import PREBUILT

ROOT = pathlib.Path(__file__).parents[2]
LEVEL = _runtime.cpu_level()
pytestmark = pytest.mark.skipif(not LEVEL or sys.platform != "linux", reason="no level fits this processor")

KERNELS = {f"kernel {i}": random.Random(i).randbytes(50) * (i % 7) for i in range(1, 600)}


@pytest.fixture(scope="module")
def packed() -> bytes:
    return prebuilt.pack(KERNELS, "x86-64-v3", b"what all have in common")


def opened(path, content: bytes, level: str = "x86-64-v3") -> prebuilt.File:
    path.write_bytes(content)
    return prebuilt.File(str(path), level)


def test_kernels_are_found_by_their_keys(packed, tmp_path):
    file = opened(tmp_path / "file", packed)
    assert file.count == len(KERNELS)
    for key, code in KERNELS.items():
        assert file.find(key) == code
        assert file.holds(key)
    for i in range(600, 1200):
        assert file.find(f"kernel {i}") is None
        assert not file.holds(f"kernel {i}")


def test_an_empty_file_of_kernels(tmp_path):
    assert opened(tmp_path / "file", prebuilt.pack({}, "x86-64-v3", b"")).find("kernel 1") is None


def test_code_of_another_level_is_not_found(packed, tmp_path):
    file = opened(tmp_path / "file", packed, level="x86-64-v4")
    assert not any(file.holds(key) for key in KERNELS)


def test_what_is_damaged_is_not_used(packed, tmp_path):
    chance = random.Random(0)
    usable = 0
    for _ in range(300):
        content = bytearray(packed)
        at = chance.randrange(len(content)) if chance.random() < 0.5 else chance.randrange(prebuilt.HEAD.size)
        content[at] ^= 1 << chance.randrange(8)
        if chance.random() < 0.3:
            del content[chance.randrange(len(content)) :]
        try:
            file = opened(tmp_path / "file", bytes(content))
        except ValueError:
            continue
        usable += 1
        for key in chance.sample(sorted(KERNELS), 20):
            assert file.find(key) in (None, KERNELS[key])
    assert usable > 50


@pytest.mark.parametrize("content", [b"", b"tandem", b"x" * 4096], ids=["empty", "short", "other"])
def test_what_is_no_such_file_is_not_used(content, tmp_path):
    (tmp_path / f"prebuilt-{LEVEL}.bin").write_bytes(content)
    with td.switches(PREBUILT=str(tmp_path)):
        assert prebuilt.file() is None
        assert prebuilt.find("kernel") is None
        assert not prebuilt.holds("kernel")


def test_the_switch():
    with td.switches(PREBUILT=0):
        assert prebuilt_path() is None
        assert prebuilt.file() is None
    if PREBUILT.value == PREBUILT.default:
        assert os.path.dirname(prebuilt_path()) == os.path.dirname(_runtime.__file__)


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
def test_levels(level):
    """A level's processors are told apart by what the renderer asks about."""
    assert level.vector_bytes == (64 if "avx512bw" in level.flags else 32 if "avx2" in level.flags else 16)
    assert ("fma" in level.flags) == ("avx2" in level.flags)


# -- with kernels: a small file is made once

PROGRAM = """
import sys
import tandem as td

numbers = [[0.5, -1.5, 2.5], [1e-3, 3.0, -70.0]]
x, z = td.tensor(numbers), td.tensor([[0.5 + 2j, -1.5j], [1e-3 + 0j, 3 - 70j]])
w = td.tensor(numbers, requires_grad=True)
td.exp(w).backward(td.tensor([[1.0, 2.0, 3.0], [0.5, 0.25, 0.125]]))
y = td.tensor(numbers, dtype=td.float64)
for r in [td.exp(x), td.exp(y), td.exp(z), td.logsumexp(x, axis=0), td.logsumexp(x, axis=-1), w.grad]:
    print(r.dtype, r.tolist())  # every digit
maps = open("/proc/self/maps").read()
print("compiler" if "libllvmlite" in maps or "llvmlite" in sys.modules else "none")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prebuilt")
    tool = [
        sys.executable,
        str(ROOT / "tools" / "prebuild.py"),
        str(folder),
        "--work",
        str(folder / "work"),
        "--jobs",
        "1",
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [*tool, "--if-changed", "--only", "exp"]
    first = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert f"prebuilt-{LEVEL}.bin" in first.stdout
    second = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert second.stdout == ""  # nothing has changed
    return folder


def run(cache, **switches) -> tuple[str, bool]:
    """(what the program printed, whether it loaded the compiler)"""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TANDEM_CACHE": "1", "TANDEM_CACHE_DIR": str(cache)}
    environment |= {"TANDEM_" + name: str(value) for name, value in switches.items()}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *lines, compiler = done.stdout.splitlines()
    return "\n".join(lines), compiler == "compiler"


def test_prebuilt_calls_need_no_compiler(folder, tmp_path):
    with_file, compiled = run(tmp_path / "cache", PREBUILT=folder)
    assert not compiled
    assert not (tmp_path / "cache").exists()
    without, compiled = run(tmp_path / "cache", PREBUILT=0)
    assert compiled
    assert (tmp_path / "cache" / "kernels").exists()
    assert with_file == without  # bit by bit


def test_a_damaged_file_means_compiling(folder, tmp_path):
    content = bytearray((folder / f"prebuilt-{LEVEL}.bin").read_bytes())
    whole, _ = run(tmp_path / "cache", PREBUILT=folder)
    for at in range(len(content) // 2, len(content), 97):
        content[at] ^= 0x55
    (tmp_path / f"prebuilt-{LEVEL}.bin").write_bytes(content)
    damaged, compiled = run(tmp_path / "cache", PREBUILT=tmp_path)
    assert compiled
    assert damaged == whole


def test_most_public_functions_come_compiled():
    """Of the package as it was built: how many examples of public functions compile nothing."""
    if not (path := prebuilt_path()) or not os.path.exists(path):
        pytest.skip("this package was built without kernels: make prebuilt")
    if prebuilt.file() is None or prebuilt.file().rendered != RENDERED.encode():
        pytest.skip("the kernels beside this package are of another version: make prebuilt")
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "cold.py"), "--examples"],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TANDEM_CACHE": "0"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    served, total = map(int, done.stdout.split()[-2:])
    assert total > 500
    assert served > 0.9 * total, done.stdout


UNFORESEEN = """
import tandem as td
from tandem.machine import preload

x = td.tensor([0.5, 1.5])
before = preload.watches_calls
td.exp(x)
watched = preload.watches_calls
td.exp(td.tensor([1, 2], dtype=td.int16))
print(before, watched, preload.watches_calls)
"""


def test_the_compiler_begins_to_load_before_a_call_that_was_not_prebuilt(folder, tmp_path):
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "TANDEM_PREBUILT": str(folder),
        "TANDEM_CACHE": "1",
        "TANDEM_CACHE_DIR": str(tmp_path / "cache"),
    }
    ask = lambda: subprocess.check_output([sys.executable, "-c", UNFORESEEN], env=environment, text=True).split()
    assert ask() == ["True", "True", "False"]
    assert ask() == ["False", "False", "False"]  # there are kernels on disk now: it waits until one is missing


FORKING = """
import os, sys, time
import tandem as td
from tandem.machine import preload

preload.begin_compiling()
time.sleep(float(sys.argv[1]))
child = os.fork()
assert td.exp(td.tensor([0, 0], dtype=td.int16)).tolist() == [1.0, 1.0]
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.parametrize("wait", [0, 0.02])
def test_a_process_may_fork_or_end_while_the_compiler_loads(wait, tmp_path):
    (tmp_path / "kernels").mkdir()  # so that nothing begins at import
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TANDEM_CACHE_DIR": str(tmp_path)}
    for program in (
        FORKING,
        "import tandem.machine.preload as p, time, sys; p.begin_compiling(); time.sleep(float(sys.argv[1]))",
    ):
        done = subprocess.run(
            [sys.executable, "-c", program, str(wait)], env=environment, timeout=300, capture_output=True
        )
        assert done.returncode == 0, done.stderr
