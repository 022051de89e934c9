"""From a kernel to the address of machine code for this host."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time

from tandem.codegen.loops import RENDERED
from tandem.switches import DEBUG

_addresses: dict[str, int] = {}
_lock = threading.Lock()
_machine = None  # (TargetMachine, PassBuilder), made when the first kernel is compiled
_engines: list = []


@functools.cache
def cpu_flags() -> frozenset[str]:
    """Feature flags of this host's CPU as the system names them."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as f:
        for line in f:
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):
                return frozenset(value.split())
    return frozenset()


@functools.cache
def vector_bytes() -> int:
    flags = cpu_flags()
    return 64 if "avx512bw" in flags else 32 if "avx2" in flags else 16


def address(kernel) -> int:
    found = _addresses.get(kernel.key)
    if found is None:
        with _lock:
            found = _addresses.get(kernel.key)
            if found is None:
                key = f"{kernel.key}-{RENDERED}"  # the cache adds the CPU
                found = _addresses[kernel.key] = _load(key, lambda: compile_object(kernel), "kernel")
    return found


def stored_address(key: str) -> int:
    """Address of a kernel that was compiled before, by its key alone. LookupError if its code is gone."""

    def gone():
        raise LookupError(key)

    found = _addresses.get(key)
    if found is None:
        with _lock:
            found = _addresses[key] = _load(f"{key}-{RENDERED}", gone, "kernel")
    return found


def _load(key: str, compile, entry: str) -> int:
    try:
        from tandem.codegen import cache
    except ImportError:
        return _load_with_llvm(compile(), entry)
    return cache.load(key, compile, entry)


def _load_with_llvm(data: bytes, entry: str) -> int:
    import llvmlite.binding as llvm

    _target_machine()
    engine = llvm.create_mcjit_compiler(
        llvm.parse_assembly(""), llvm.Target.from_default_triple().create_target_machine()
    )
    engine.add_object_file(llvm.ObjectFileRef.from_data(data))
    engine.finalize_object()
    _engines.append(engine)
    return engine.get_function_address(entry)


def _target_machine():
    global _machine
    if _machine is None:
        import llvmlite.binding as llvm

        if "numba" not in sys.modules:
            # A third of the compile time, for loops whose addresses we already wrote the way the machine wants them. The switch
            # is one for the whole process, so it is left alone where someone else is known to compile with this LLVM.
            llvm.set_option("tandem", "-disable-lsr")
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(),
            features=llvm.get_host_cpu_features().flatten(),
            opt=2,
            reloc="pic",
            codemodel="small",
        )
        _machine = machine, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    return _machine


def _optimized_module(kernel):
    import llvmlite.binding as llvm

    from tandem.codegen.llvm import render

    machine, pass_builder = _target_machine()
    text = render(kernel, vector_bytes(), cpu_flags())
    if DEBUG >= 4:
        print(f"tandem: kernel {kernel.name}\n{kernel}\n{text}")
    module = llvm.parse_assembly(text)
    # The renderer already shares subexpressions, hoists and vectorises; what is left is to put accumulators into registers
    # and to clean up. A longer pipeline costs more time than it gains.
    manager = llvm.create_new_function_pass_manager()
    manager.add_sroa_pass()
    manager.add_instruction_combine_pass()
    manager.add_simplify_cfg_pass()
    manager.run(module.get_function("kernel"), pass_builder)
    return module, machine


def compile_object(kernel) -> bytes:
    """Position-independent object code; the function's symbol is `kernel`."""
    started = time.perf_counter()
    module, machine = _optimized_module(kernel)
    code = machine.emit_object(module)
    if DEBUG >= 2:
        print(
            f"tandem: kernel {kernel.name}: {len(code)} bytes, compiled in {(time.perf_counter() - started) * 1e3:.1f} ms"
        )
    return code


def assembly(kernel) -> str:
    """What the kernel compiles to, for people."""
    module, machine = _optimized_module(kernel)
    return machine.emit_assembly(module)
