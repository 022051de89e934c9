"""From LLVM IR text to object code. Also a program of its own, which does this for another process (codegen/workers.py).

    python assemble.py FOLDER_OF_LLVMLITE KEEP_LSR

reads texts from stdin and writes object code to stdout, each with its length in four bytes before it; no bytes for what fails.
It imports nothing but llvmlite, so that it starts quickly.

Note [LLVM by way of llvmlite]
LLVM comes in llvmlite's shared library. Importing llvmlite.binding takes longer than most compilations, and nearly all of that is
Python that we do not need. So the few functions that we need are called directly in versions known to have them as they are
written down here (tests/llvm/test_assemble.py compares both ways), and by way of llvmlite.binding in all others.
"""

from __future__ import annotations

import os
import sys
import threading

LONG = 150  # lines of text from which on cleaning up takes longer than it gains
DIRECT = ("0.45.", "0.46.", "0.47.", "0.48.", "0.49.", "0.50.")  # versions whose library has Library's functions
# The least that uses what most kernels use: a loop over vectors, arithmetic, constants, a comparison.
SMALL = """
define void @kernel(ptr %p, ptr %i, i64 %begin, i64 %end) {
entry:
  %any = icmp slt i64 %begin, %end
  br i1 %any, label %loop, label %done
loop:
  %n = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %at = getelementptr float, ptr %p, i64 %n
  %x = load <8 x float>, ptr %at, align 4
  %y = fmul <8 x float> %x, splat (float 1.25)
  %low = fcmp olt <8 x float> %y, zeroinitializer
  %s = select <8 x i1> %low, <8 x float> %x, <8 x float> %y
  %w = fpext <8 x float> %s to <8 x double>
  %z = fptosi <8 x double> %w to <8 x i32>
  %b = shl <8 x i32> %z, splat (i32 3)
  %f = bitcast <8 x i32> %b to <8 x float>
  %r = call <8 x float> @llvm.fma.v8f32(<8 x float> %f, <8 x float> %x, <8 x float> %y)
  store <8 x float> %r, ptr %at, align 4
  %next = add i64 %n, 8
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
"""
_compiler = None  # made when the first kernel is compiled
_lock = threading.Lock()
os.register_at_fork(after_in_child=_lock._at_fork_reinit)


def compiler(keep_lsr: bool):
    """What compiles in this process: a Library or a Binding."""
    global _compiler
    if _compiler is None:
        import llvmlite

        path = os.path.join(os.path.dirname(llvmlite.__file__), "binding", "libllvmlite.so")
        known = llvmlite.__version__.startswith(DIRECT) and os.path.exists(path)
        _compiler = Library(path, keep_lsr) if known else Binding(keep_lsr)
    return _compiler


def object_code(text: str, keep_lsr: bool, cpu: str = "") -> bytes:
    """Position-independent object code; the function's symbol is `kernel`. `cpu`: LLVM's name of what it is for, or this host."""
    with _lock:
        return compiler(keep_lsr).emit(text, True, cpu)


def keeps_lsr() -> bool:
    """The switch is one for the whole process, so it is left alone where someone else is known to compile with this LLVM."""
    return "numba" in sys.modules


def warm_up() -> None:
    """Compiles something small, which has the system bring in most of the pages that the first kernel needs."""
    object_code(SMALL, keeps_lsr())


def assembly(text: str, keep_lsr: bool) -> str:
    with _lock:
        return compiler(keep_lsr).emit(text, False).decode()


# The renderer already shares subexpressions, hoists and vectorises; what is left for passes is to put accumulators into registers
# and, where that is soon done, to clean up. A longer pipeline costs more time than it gains.


def _wants_passes(text: str) -> bool:
    return " optnone " not in text


def _wants_cleaning(text: str) -> bool:
    return text.count("\n") < LONG


# A third of the compile time, for loops whose addresses we already wrote the way the machine wants them.
_WITHOUT_LSR = "-disable-lsr"


class Library:
    """llvmlite's shared library. See Note [LLVM by way of llvmlite]."""

    def __init__(self, path: str, keep_lsr: bool):
        import ctypes as c

        self.c = c
        pointer, text, number, out = c.c_void_p, c.c_char_p, c.c_int, c.POINTER(c.c_char_p)
        prototypes = {
            "SetCommandLine": (None, text, text),
            "InitializeNativeTarget": (number,),
            "InitializeNativeAsmPrinter": (number,),
            "GetDefaultTargetTriple": (None, out),
            "GetHostCPUName": (None, out),
            "GetHostCPUFeatures": (number, out),
            "GetTargetFromTriple": (pointer, text, out),
            "CreateTargetMachine": (pointer, pointer, text, text, text, number, text, text, number, number, text),
            "CreatePipelineTuningOptions": (pointer,),
            "CreatePassBuilder": (pointer, pointer, pointer),
            "CreateNewFunctionPassManager": (pointer,),
            "function_AddSROAPass": (None, pointer),
            "function_AddInstCombinePass": (None, pointer),
            "function_AddSimplifyCFGPass": (None, pointer),
            "RunNewFunctionPassManager": (None, pointer, pointer, pointer),
            "DisposeNewFunctionPassManger": (None, pointer),  # so spelt
            "ContextCreate": (pointer,),
            "ContextDispose": (None, pointer),
            "ParseAssembly": (pointer, pointer, text, out),
            "GetNamedFunction": (pointer, pointer, text),
            "DisposeModule": (None, pointer),
            "TargetMachineEmitToMemory": (pointer, pointer, pointer, number, out),
            "GetBufferStart": (pointer, pointer),
            "GetBufferSize": (c.c_size_t, pointer),
            "DisposeMemoryBuffer": (None, pointer),
            "DisposeString": (None, text),
        }
        library = c.CDLL(path)
        for name, (result, *arguments) in prototypes.items():
            function = getattr(library, "LLVMPY_" + name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        if not keep_lsr:
            self.SetCommandLine(b"tandem", _WITHOUT_LSR.encode())
        self.InitializeNativeTarget()
        self.InitializeNativeAsmPrinter()
        self.targets: dict[str, tuple] = {}  # (target machine, pass builder) by CPU

    def _target(self, cpu: str) -> tuple:
        found = self.targets.get(cpu)
        if found is None:
            triple = self._string(self.GetDefaultTargetTriple)
            name, features = cpu.encode(), b""
            if not cpu:
                name, features = self._string(self.GetHostCPUName), self._string(self.GetHostCPUFeatures)
            target = self._made(self.GetTargetFromTriple, triple)
            machine = self.CreateTargetMachine(target, triple, name, features, 2, b"pic", b"small", 0, 0, b"")
            if not machine:
                raise RuntimeError("LLVM has no code generator for this machine")
            found = self.targets[cpu] = machine, self.CreatePassBuilder(machine, self.CreatePipelineTuningOptions())
        return found

    def _string(self, function) -> bytes:
        given = self.c.c_char_p()
        function(self.c.byref(given))
        text = given.value or b""
        self.DisposeString(given)
        return text

    def _made(self, function, *arguments):
        """What a function makes that also takes a place for an error message, which is raised."""
        message = self.c.c_char_p()
        made = function(*arguments, self.c.byref(message))
        if message.value:
            text = message.value.decode(errors="replace")
            self.DisposeString(message)
            raise RuntimeError(f"LLVM: {text}")
        if not made:
            raise RuntimeError("LLVM failed without saying why")
        return made

    def emit(self, text: str, as_object: bool, cpu: str = "") -> bytes:
        machine, pass_builder = self._target(cpu)
        context = self.ContextCreate()  # of its own, so that nothing of this kernel stays
        module = None
        try:
            module = self._made(self.ParseAssembly, context, text.encode())
            if _wants_passes(text):
                self._optimize(self.GetNamedFunction(module, b"kernel"), pass_builder, _wants_cleaning(text))
            buffer = self._made(self.TargetMachineEmitToMemory, machine, module, int(as_object))
            made = self.c.string_at(self.GetBufferStart(buffer), self.GetBufferSize(buffer))
            self.DisposeMemoryBuffer(buffer)
            return made
        finally:
            if module:
                self.DisposeModule(module)
            self.ContextDispose(context)

    def _optimize(self, function, pass_builder, clean: bool) -> None:
        manager = self.CreateNewFunctionPassManager()
        self.function_AddSROAPass(manager)
        if clean:
            self.function_AddInstCombinePass(manager)
            self.function_AddSimplifyCFGPass(manager)
        self.RunNewFunctionPassManager(manager, function, pass_builder)
        self.DisposeNewFunctionPassManger(manager)


class Binding:
    """The same by way of llvmlite.binding."""

    def __init__(self, keep_lsr: bool):
        import llvmlite.binding as llvm

        self.llvm = llvm
        if not keep_lsr:
            llvm.set_option("tandem", _WITHOUT_LSR)
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.targets: dict[str, tuple] = {}

    def _target(self, cpu: str) -> tuple:
        found = self.targets.get(cpu)
        if found is None:
            llvm = self.llvm
            machine = llvm.Target.from_default_triple().create_target_machine(
                cpu=cpu or llvm.get_host_cpu_name(),
                features="" if cpu else llvm.get_host_cpu_features().flatten(),
                opt=2,
                reloc="pic",
                codemodel="small",
            )
            options = llvm.create_pipeline_tuning_options(speed_level=2)
            found = self.targets[cpu] = machine, llvm.create_pass_builder(machine, options)
        return found

    def emit(self, text: str, as_object: bool, cpu: str = "") -> bytes:
        machine, pass_builder = self._target(cpu)
        module = self.llvm.parse_assembly(text)
        if _wants_passes(text):
            manager = self.llvm.create_new_function_pass_manager()
            manager.add_sroa_pass()
            if _wants_cleaning(text):
                manager.add_instruction_combine_pass()
                manager.add_simplify_cfg_pass()
            manager.run(module.get_function("kernel"), pass_builder)
        return machine.emit_object(module) if as_object else machine.emit_assembly(module).encode()


def _serve(keep_lsr: bool):
    texts, objects = sys.stdin.buffer, sys.stdout.buffer
    compiler(keep_lsr)._target("")  # while the other process still writes its first text
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
