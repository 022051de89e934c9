"""LLVM called directly makes what it makes by way of llvmlite.binding."""

import os

import pytest

from tandem.llvm import assemble

SHORT = "define void @kernel(ptr %p) {\n  store float 1.0, ptr %p\n  ret void\n}\n"
STACK = """define void @kernel(ptr %p) {
  %slot = alloca float
  store float 1.0, ptr %slot
  %v = load float, ptr %slot
  store float %v, ptr %p
  ret void
}
"""
QUICK = SHORT.replace(") {", ") #0 {") + "attributes #0 = { optnone noinline nounwind }\n"


@pytest.fixture(scope="module")
def both():
    llvmlite = pytest.importorskip("llvmlite")
    path = os.path.join(os.path.dirname(llvmlite.__file__), "binding", "libllvmlite.so")
    if not llvmlite.__version__.startswith(assemble.DIRECT) or not os.path.exists(path):
        pytest.skip(f"llvmlite {llvmlite.__version__} is used by way of llvmlite.binding only")
    return assemble.Library(path, False), assemble.Binding(False)


@pytest.mark.parametrize("text", [SHORT, STACK, QUICK], ids=["short", "stack", "quick"])
def test_both_ways_make_the_same_code(both, text):
    direct, binding = both
    assert binding.emit(text, True) == direct.emit(text, True)
    assert binding.emit(text, False) == direct.emit(text, False)


def test_passes_put_stack_slots_into_registers(both):
    for way in both:
        assert way.emit(SHORT, False) == way.emit(STACK, False)


def test_text_that_llvm_refuses_is_an_error(both):
    for way in both:
        with pytest.raises(RuntimeError, match="expected"):
            way.emit("define void @kernel( {", True)


def test_threads_may_compile_at_once():
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: assemble.object_code(STACK, False), range(40)))
    assert {made[0]} == set(made)
