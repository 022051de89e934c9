"""From LLVM IR text to object code. Also a program of its own, which does this for another process (workers.py).

    python assemble.py FOLDER_OF_LLVMLITE KEEP_LSR

reads texts from stdin and writes object code to stdout, each with its length in four bytes before it; no bytes for what fails.
It imports nothing but llvmlite, so that it starts quickly.
"""

from __future__ import annotations

import sys

_machine = None  # (TargetMachine, PassBuilder), made when the first kernel is compiled


def target_machine(keep_lsr: bool):
    global _machine
    if _machine is None:
        import llvmlite.binding as llvm

        if not keep_lsr:
            # A third of the compile time, for loops whose addresses we already wrote the way the machine wants them.
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


def optimized_module(text: str, keep_lsr: bool):
    """The module after LLVM's passes, and the machine to emit it for."""
    import llvmlite.binding as llvm

    machine, pass_builder = target_machine(keep_lsr)
    module = llvm.parse_assembly(text)
    # The renderer already shares subexpressions, hoists and vectorises; what is left is to put accumulators into registers
    # and to clean up. A longer pipeline costs more time than it gains.
    manager = llvm.create_new_function_pass_manager()
    manager.add_sroa_pass()
    manager.add_instruction_combine_pass()
    manager.add_simplify_cfg_pass()
    manager.run(module.get_function("kernel"), pass_builder)
    return module, machine


def object_code(text: str, keep_lsr: bool) -> bytes:
    """Position-independent object code; the function's symbol is `kernel`."""
    module, machine = optimized_module(text, keep_lsr)
    return machine.emit_object(module)


def _serve(keep_lsr: bool):
    texts, objects = sys.stdin.buffer, sys.stdout.buffer
    target_machine(keep_lsr)  # while the other process still writes its first text
    while header := texts.read(4):
        text = texts.read(int.from_bytes(header, "little")).decode()
        try:
            made = object_code(text, keep_lsr)
        except Exception:  # the other process tries it itself, and tells
            made = b""
        objects.write(len(made).to_bytes(4, "little") + made)
        objects.flush()


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    _serve(sys.argv[2] == "1")
