"""The kernel cache and the object loader below it."""

import contextlib
import ctypes
import itertools
import math
import multiprocessing
import os
import subprocess
import sys
import threading
import time

import pytest

from tandem import _runtime
from tandem.codegen import cache
from tandem.switches import CACHE, CACHE_DIR

HOST_IS_ELF = sys.platform == "linux"
pytestmark = pytest.mark.skipif(not HOST_IS_ELF, reason="objects are not ELF files here")

SOURCE = """
@table = private constant [4 x double] [double 1.5, double 2.5, double 3.5, double 4.5]
@pointers = private constant [2 x ptr] [ptr @twice, ptr @thrice]
declare double @sinh(double)
declare double @llvm.fma.f64(double, double, double)
define double @twice(double %x) noinline { %y = fadd double %x, %x
  ret double %y }
define double @thrice(double %x) noinline { %y = fmul double %x, 3.0
  ret double %y }
define double @look_up(i64 %i) { %p = getelementptr double, ptr @table, i64 %i
  %y = load double, ptr %p
  ret double %y }
define double @outside(double %x) { %y = call double @sinh(double %x)
  %z = fadd double %y, 1.0
  ret double %z }
define double @choose(i64 %i, double %x) { %p = getelementptr ptr, ptr @pointers, i64 %i
  %f = load ptr, ptr %p
  %y = call double %f(double %x)
  ret double %y }
define ptr @address() { ret ptr @sinh }
"""


def compile_ir(source=SOURCE, triple=None, **options):
    from llvmlite import binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple) if triple else llvm.Target.from_default_triple()
    options = {"reloc": "pic", "codemodel": "small", **options}
    return target.create_target_machine(opt=2, **options).emit_object(llvm.parse_assembly(source))


@pytest.fixture(scope="module")
def object_code():
    return compile_ir()


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setattr(CACHE, "value", 1)
    monkeypatch.setattr(CACHE_DIR, "value", str(tmp_path))
    monkeypatch.setattr(cache, "_loaded", {})
    return tmp_path / "kernels"


def call(address, *arguments):
    types = [ctypes.c_int64 if isinstance(a, int) else ctypes.c_double for a in arguments]
    return ctypes.CFUNCTYPE(ctypes.c_double, *types)(address)(*arguments)


@pytest.mark.parametrize("options", [{}, {"reloc": "static", "codemodel": "large"}], ids=["small", "large"])
def test_functions_of_an_object_can_be_called(options):
    object_code = compile_ir(**options)
    assert call(_runtime.load_object(object_code, "look_up"), 2) == 3.5
    assert 1.0 + math.sinh(0.5) == call(_runtime.load_object(object_code, "outside"), 0.5)
    choose = _runtime.load_object(object_code, "choose")
    assert (call(choose, 0, 2.0), call(choose, 1, 2.0)) == (4.0, 6.0)
    address = ctypes.CFUNCTYPE(ctypes.c_uint64)(_runtime.load_object(object_code, "address"))()
    assert call(address, 0.5) == math.sinh(0.5)


def test_aarch64_objects_link():
    """Decoded by hand, as there is no such machine here: adrp + ldr reach the table, and the call reaches its stub."""
    base, undefined = 0x7F0000012340 & ~63, 0x123456789ABC
    object_code = compile_ir(triple="aarch64-unknown-linux-gnu")
    image, start = _runtime.link_object(object_code, "look_up", base, undefined)
    word = lambda offset: int.from_bytes(image[offset : offset + 4], "little")
    adrp, add = word(start), word(start + 4)
    assert adrp & 0x9F000000 == 0x90000000
    immediate = (adrp >> 29 & 3) | (adrp >> 5 & 0x7FFFF) << 2
    immediate -= (immediate >> 20) << 21
    page = ((base + start) & ~0xFFF) + (immediate << 12)
    table = page + (add >> 10 & 0xFFF) - base
    assert list(memoryview(image[table : table + 32]).cast("d")) == [1.5, 2.5, 3.5, 4.5]

    image, start = _runtime.link_object(object_code, "outside", base, undefined)
    calls = [o for o in range(start, start + 32, 4) if word(o) >> 26 == 0b100101]
    stub = calls[0] + 4 * ((word(calls[0]) & 0x3FFFFFF) - ((word(calls[0]) >> 25 & 1) << 26))
    load = word(stub)
    assert load & 0xFF00001F == 0x58000010  # ldr x16, literal
    literal = stub + 4 * ((load >> 5 & 0x7FFFF) - ((load >> 23 & 1) << 19))
    assert undefined == int.from_bytes(image[literal : literal + 8], "little")
    assert word(stub + 4) == 0xD61F0200  # br x16


def test_objects_for_another_machine_are_refused():
    other = "aarch64" if _runtime.cpu_id().startswith("x86_64") else "x86_64"
    with pytest.raises(Exception, match="another kind of machine"):
        _runtime.load_object(compile_ir(triple=other + "-unknown-linux-gnu"), "twice")


def test_damaged_objects_are_errors(object_code):
    with pytest.raises(Exception, match="no function 'nothing'"):
        _runtime.load_object(object_code, "nothing")
    with pytest.raises(Exception, match="not in this process"):
        _runtime.load_object(compile_ir(SOURCE.replace("@sinh", "@no_such_function")), "outside")
    for length in range(0, len(object_code), 7):
        with pytest.raises(Exception, match="cannot be loaded"):
            _runtime.load_object(object_code[:length], "choose")


def test_any_damaged_byte_is_an_error_or_harmless(object_code):
    """Linking only: what is in a damaged object must not be run."""
    for position in range(len(object_code)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(object_code)
            damaged[position] ^= flip
            with contextlib.suppress(ValueError, RuntimeError):
                _runtime.link_object(bytes(damaged), "choose", 1 << 20, 1 << 21)


def test_many_kernels_share_pages(object_code):
    addresses = sorted(_runtime.load_object(object_code, "twice") for _ in range(50))
    # One block of pages may become full on the way, and the next lies elsewhere.
    assert sum(b - a >= 4096 for a, b in itertools.pairwise(addresses)) <= 1


def _in_child(object_code, before, queue):
    address = _runtime.load_object(object_code, "thrice")
    queue.put((call(before, 1.0), call(address, 1.0)))


def test_a_forked_child_and_its_parent_both_load(object_code):
    before = _runtime.load_object(object_code, "twice")
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=_in_child, args=(object_code, before, queue)) for _ in range(2)]
    for child in children:
        child.start()
    after = [_runtime.load_object(object_code, "look_up") for _ in range(20)]
    assert [queue.get(timeout=300) for _ in children] == [(2.0, 3.0)] * 2
    for child in children:
        child.join()
    assert {2.5} == {call(address, 1) for address in after}


def test_a_kernel_is_compiled_once(object_code, monkeypatch):
    compiled = []
    compile = lambda: compiled.append(1) or object_code
    first = cache.load("kernel", compile, "twice")
    assert first == cache.load("kernel", compile, "twice")
    assert call(cache.load("kernel", compile, "twice"), 1.5) == 3.0
    monkeypatch.setattr(cache, "_loaded", {})  # as in a new process
    assert call(cache.load("kernel", compile, "twice"), 1.5) == 3.0
    assert compiled == [1]
    cache.load("another kernel", compile, "twice")
    assert compiled == [1, 1]


def test_a_damaged_file_is_replaced(object_code, directory, monkeypatch):
    cache.load("kernel", lambda: object_code, "twice")
    (path,) = directory.iterdir()
    good = path.read_bytes()
    for damaged in (b"", good[:20], good[:-100], good[:200] + b"x" + good[201:]):
        path.write_bytes(damaged)
        monkeypatch.setattr(cache, "_loaded", {})
        assert call(cache.load("kernel", lambda: object_code, "twice"), 2.0) == 4.0
        assert good == path.read_bytes()


def test_a_file_under_a_foreign_name_is_replaced(object_code, directory, monkeypatch):
    """Whole and undamaged, but the code of something else, which would be called in its place."""
    other = compile_ir(SOURCE.replace("fadd double %x, %x", "fmul double %x, 8.0"))
    cache.load("kernel", lambda: object_code, "twice")
    cache.load("another", lambda: other, "twice")
    good = {path: path.read_bytes() for path in directory.iterdir()}
    for path, content in zip(good, reversed(good.values()), strict=True):
        path.write_bytes(content)
    monkeypatch.setattr(cache, "_loaded", {})
    assert call(cache.load("kernel", lambda: object_code, "twice"), 2.0) == 4.0
    assert call(cache.load("another", lambda: other, "twice"), 2.0) == 16.0
    assert good == {path: path.read_bytes() for path in good}


SHUFFLED = """
import tandem as td
f = td.compile(lambda x: (x[1:3] * 2 + 1).exp().sum(0) / 3)
print((f(td.ones(4, 5)) @ td.ones(5, 2)).tolist(), (td.ones(3, 7).sqrt() - 2.0).sum().item())
"""


def test_files_that_changed_places_are_no_harm(tmp_path):
    environment = {**os.environ, "TANDEM_CACHE_DIR": str(tmp_path), "TANDEM_CACHE": "1", "TANDEM_PREBUILT": "0"}
    run = lambda: subprocess.run([sys.executable, "-c", SHUFFLED], capture_output=True, text=True, env=environment)
    first = run()
    assert first.returncode == 0, first.stderr
    for folder in tmp_path.iterdir():
        files = sorted(f for f in folder.iterdir() if f.is_file())
        contents = [f.read_bytes() for f in files]
        for file, content in zip(files, contents[1:] + contents[:1], strict=True):
            file.write_bytes(content)
    again = run()
    assert (again.returncode, again.stdout) == (0, first.stdout), again.stderr


@pytest.mark.parametrize("place", [None, "/proc/nowhere", "/dev/null/x"])
def test_without_a_usable_directory_kernels_live_in_the_process(object_code, place, monkeypatch):
    monkeypatch.setattr(cache, "cache_dir", lambda: place)
    compiled = []
    for _ in range(2):
        assert call(cache.load("kernel", lambda: compiled.append(1) or object_code, "twice"), 2.0) == 4.0
    assert compiled == [1]


def test_nothing_is_kept_of_what_cannot_be_loaded(directory):
    with pytest.raises(Exception, match="cannot be loaded"):
        cache.load("kernel", lambda: b"\x7fELF but no more", "twice")
    assert not directory.exists()
    with pytest.raises(ZeroDivisionError):
        cache.load("kernel", lambda: 1 // 0, "twice")


def test_threads_wait_for_the_one_that_compiles(object_code):
    compiled, addresses = [], []

    def compile():
        compiled.append(1)
        time.sleep(0.05)
        return object_code

    threads = [
        threading.Thread(target=lambda: addresses.append(cache.load("kernel", compile, "twice"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert compiled == [1]
    assert len(addresses) == 8 and len(set(addresses)) == 1


def test_loading_from_disk_is_quick_and_needs_no_llvm(object_code, directory):
    cache.load("kernel", lambda: object_code, "twice")
    script = f"""
import sys, time
from tandem.codegen import cache
cache.cache_dir = lambda: {str(directory.parent)!r}
start = time.process_time()
assert cache.load("kernel", None, "twice")
print((time.process_time() - start) * 1e3)
assert "llvmlite" not in sys.modules
"""
    times = [float(subprocess.check_output([sys.executable, "-c", script], text=True)) for _ in range(3)]
    assert min(times) < 3.0  # ms of processor time: it takes half of one, and compiling takes tens
