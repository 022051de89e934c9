from collections.abc import Sequence
import enum
import types
from typing import Annotated

import numpy
from numpy.typing import NDArray

from tandem import Size as Size, Tensor as Tensor
from tandem.tensors.methods import (
    _register_record_hook as register_hook,
    _register_record_prehook as register_prehook
)


def set_error_factory(factory: object) -> None:
    """
    Have errors of the runtime made by factory(kind, message, fix, op, source, place); tandem.errors.from_runtime unless set.
    """

def set_modules_here(here: object) -> None:
    """
    What to ask for the modules that run where an error may show late (module_calls.here).
    """

def memory_stats() -> dict: ...

def reset_peak_memory() -> None: ...

def empty_cache() -> None: ...

def set_memory_limit(bytes: int) -> None: ...

def set_dtypes(dtypes: Sequence) -> None:
    """The objects that stand for element types, in the order of their codes."""

def set_devices(devices: Sequence) -> None:
    """
    The objects that Tensor.device gives: for the CPU, then for each CUDA device.
    """

def chunk_views(x: object, chunks: int, axis: int) -> object: ...

def basic_view(x: Tensor, key: object | None) -> object:
    """
    x[key] where that is a plain view that needs no record; None otherwise.
    """

def set_operator(name: str, function: object | None) -> object:
    """
    Have an operator of Tensor call `function` with its operands as they were written; gives what it called before.
    """

operator_names: tuple = ...

def make_subclass(type: type, data: Tensor) -> Tensor:
    """
    An object of a subclass of Tensor on the memory of `data`, without its history; for __new__ of the subclass.
    """

def same_as_subclass(type: type, result: Tensor) -> Tensor:
    """
    An object of a subclass of Tensor that is the same result of the same record as `result`, which nobody else holds.
    """

def make_in_parts(type: type, dtype: object, shape: object, device: int) -> Tensor:
    """
    An object of a subclass of Tensor that stands for a tensor without having its memory; operators hand it to Python (Note [Tensors in parts]).
    """

def set_data(tensor: Tensor, source: Tensor) -> None:
    """
    Gives a leaf the memory, shape and dtype of another tensor; it stays the same object for everyone who holds it.
    """

def empty(shape: object, dtype: object, device: int = 0) -> Tensor:
    """
    A contiguous tensor whose contents are undefined, on the CPU (0) or cuda:(device - 1).
    """

def zeros(shape: object, dtype: object) -> Tensor:
    """
    A contiguous tensor of zeros on the CPU. Memory that comes from the system is not written.
    """

def alias(tensor: Tensor, shape: object, strides: object, offset: int) -> Tensor:
    """
    The storage of a tensor seen through another geometry, in elements from its start; no history.
    """

def set_view_base(made: Tensor, of: Tensor) -> None:
    """
    `made`, which shares the memory of `of`, counts as a view of it from now on.
    """

def make_sharded(parts: object, shape: object, dtype: object, device: int = 0, writable: bool = True) -> Tensor:
    """
    A tensor whose elements lie on several ranks, as `parts` says; `shape` is that of the whole.
    """

def parts_of(tensor: object | None) -> object:
    """
    What make_sharded was given, of a sharded tensor or a view of it; None for all others.
    """

def reinterpret(tensor: Tensor, shape: object, strides: object, dtype: object) -> Tensor:
    """
    The bytes of a tensor as elements of another type; the caller has checked that they fit. No history.
    """

def from_data(data: object, dtype: object | None = None) -> Tensor:
    """
    A new tensor from a number, nested lists, or arrays among them; float32, int64 or bool unless a dtype is given.
    """

def default_dtype_code() -> int: ...

def set_default_dtype_code(code: int) -> None:
    """
    The code of the dtype that floats have unless told otherwise; the caller has checked that it is a float's.
    """

def to_bytes(tensor: Tensor) -> bytes:
    """The elements in row-major order."""

def from_bytes(data: bytes, dtype: object, shape: object) -> Tensor:
    """A new tensor from such bytes."""

def from_numpy(array: object) -> Tensor:
    """A tensor on the memory of a NumPy array; changes are seen by both."""

def to_numpy(tensor: Tensor) -> object:
    """A NumPy array on the memory of a tensor; changes are seen by both."""

def from_buffer(object: object) -> Tensor:
    """
    A tensor on the memory of any object with the buffer protocol; read-only where that is.
    """

def from_dlpack(object: object, copy: object | None = None) -> Tensor:
    """
    A tensor on the memory of any object with __dlpack__; copy=True takes a copy instead.
    """

class Generator:
    """A stream of random numbers, set by its seed."""

    def __init__(self, seed: object | None = None) -> None: ...

    def manual_seed(self, seed: object) -> object:
        """Start again from this seed; gives the generator itself."""

    def seed(self) -> int:
        """Start again from a seed nobody can foresee; gives that seed."""

    def initial_seed(self) -> int: ...

    def get_state(self) -> tuple[int, int]:
        """(seed, offset): everything that later numbers depend on."""

    def set_state(self, state: tuple[int, int]) -> None: ...

    def __getstate__(self) -> tuple[int, int]: ...

    def __setstate__(self, arg: tuple[int, int], /) -> None: ...

    def __repr__(self) -> str: ...

def default_generator() -> Generator: ...

def set_thread_generator(generator: object | None) -> None:
    """
    Gives this thread a default generator of its own, which the caller keeps; None: that of the process.
    """

PARAMETER_ALIASES: tuple = ...

class IntCode(enum.Enum):
    """What a plan computes of two integers."""

    Add = 0

    Mul = 1

    FloorDiv = 2

    Mod = 3

    Min = 4

    Max = 5

    Sub = 6

class Relation(enum.Enum):
    """Of a guard: of an integer with 0."""

    Equal = 0

    NotEqual = 1

    Less = 2

    GreaterEqual = 3

class ValueKind(enum.Enum):
    """Where a value of a plan lies."""

    Input = 0

    Fresh = 1

    View = 2

class SizeFrom(enum.Enum):
    """What of an input an integer of a plan is."""

    Size = 0

    Stride = 1

    Int = 2

class RegionKind(enum.Enum):
    """What a region does with its plans."""

    Cond = 0

    Scan = 1

    While = 2

    Block = 3

    Repeat = 4

class SavedFrom(enum.Enum):
    """What backward keeps."""

    Input = 0

    Output = 1

    Temporary = 2

class LayoutClass(enum.Enum):
    """How a tensor's elements lie."""

    Contiguous = 0

    Dense = 1

    Strided = 2

class OperandKind(enum.Enum):
    """Where an operand of a captured call comes from."""

    NoOperand = 0

    Leaf = 1

    Result = 2

    Number = 3

    Int = 4

class KernelExtra(enum.Enum):
    """What follows the operands of a kernel of a device."""

    Reports = 1

    Guarded = 2

class FlowKind(enum.Enum):
    """What a node of a dataflow graph does."""

    Source = 0

    Compute = 1

    Switch = 2

    Merge = 3

    Enter = 4

    Exit = 5

    NextIteration = 6

    LoopCond = 7

    Done = 8

    Fetch = 9

class ProfileKind(enum.Enum):
    """What an entry of a profile is."""

    Operator = 0

    Kernel = 1

    Library = 2

    Region = 3

    Copy = 4

    Compile = 5

    Wait = 6

class CudaFunction:
    """A kernel of a device, loaded: its address and how it is launched."""

    def __init__(self, address: int, threads_x: int, threads_y: int, extra: int, shared: int) -> None: ...

class PlanBuilder:
    def __init__(self) -> None: ...

    def slot(self, arg: int, /) -> int: ...

    def bind(self, arg0: int, arg1: int, arg2: int, /) -> int: ...

    def int_op(self, arg0: int, arg1: int, arg2: int, /) -> int: ...

    def guard(self, arg0: int, arg1: int, /) -> None: ...

    def value(self, arg0: int, arg1: int, arg2: int, arg3: int, arg4: Sequence[int], arg5: Sequence[int], /) -> int: ...

    def origin(self, op: str, file: str, function: str, line: int, call: int = -1, place: object | None = None) -> None: ...

    def write_later(self, writer: object) -> None:
        """
        The instructions are added by writer(builder), when the plan first runs.
        """

    def continued(self) -> PlanBuilder:
        """A plan with the same sizes and values, to add instructions to."""

    def take(self, made: PlanBuilder) -> None:
        """Takes the instructions over, and what they need."""

    def begin_writes(self) -> None: ...

    def no_origin(self) -> None: ...

    def kernel(self, arg0: object, arg1: Sequence[int], arg2: Sequence[int], arg3: int, arg4: float, arg5: str, /) -> None: ...

    def library(self, arg0: str, arg1: Sequence[int], arg2: Sequence[int], arg3: Sequence[int], arg4: Sequence[float], arg5: str, /) -> None: ...

    def epilogue(self, arg0: object, arg1: Sequence[int], arg2: Sequence[int], arg3: int, arg4: int, arg5: bool, arg6: Sequence[int], arg7: float, /) -> None: ...

    def factors(self, arg0: int, arg1: int, arg2: int, /) -> None: ...

    def update(self, arg0: object, arg1: Sequence[int], arg2: Sequence[int], arg3: int, arg4: int, arg5: int, arg6: int, arg7: Sequence[int], arg8: bool, arg9: int, arg10: float, /) -> None: ...

    def part(self, arg0: PlanBuilder, arg1: Sequence[int], /) -> None: ...

    def region(self, arg0: int, arg1: Sequence[int], arg2: Sequence[int], arg3: int, arg4: int, arg5: int, arg6: bool, /) -> None: ...

    def block_kernels(self, arg: int, /) -> None: ...

    def run_part(self, arg0: Sequence[int], arg1: Sequence[int], /) -> None: ...

    def transfer(self, arg0: int, arg1: int, /) -> None: ...

    def place(self, arg0: int, arg1: int, arg2: bool, /) -> None: ...

    def free(self, arg: Sequence[int], /) -> None: ...

    def output(self, arg0: int, arg1: int, arg2: int, arg3: bool, /) -> None: ...

    def backward(self, arg0: Sequence[int], arg1: Sequence[tuple[int, int, int]], arg2: Sequence[int], arg3: Sequence[int], arg4: object, arg5: object, /) -> None: ...

    def lazy_backward(self, arg0: object, arg1: Sequence[Sequence[int]], /) -> None: ...

    def accepts(self, arg: list, /) -> bool: ...

    def run(self, arg0: list, arg1: Sequence[bytes], arg2: Sequence[int], /) -> list: ...

    def keep(self, arg: object, /) -> None: ...

    def on_host(self, arg: int, /) -> None: ...

    def parts(self, arg: Sequence[int], /) -> None: ...

    def writes(self, arg: Sequence[int], /) -> None: ...

    def set_program(self, arg0: int, arg1: Sequence[int], arg2: Sequence[int], /) -> None: ...

    def lay_out(self) -> None: ...

    def set_device(self, arg: int, /) -> None: ...

    def set_over_devices(self) -> None: ...

    def set_name(self, arg: str, /) -> None: ...

    def set_returns_tuple(self, arg: bool, /) -> None: ...

    def set_rng_advance(self, arg: int, /) -> None: ...

class OpFunction:
    def __repr__(self, /):
        """Return repr(self)."""

    def __call__(self, /, *args, **kwargs):
        """Call self as a function."""

    def __get__(self, instance, owner=None, /):
        """Return an attribute of instance, which is of type owner."""

    clear_cache: types.MethodDescriptorType = ...

    __vectorcalloffset__: types.MemberDescriptorType = ...

    constants: types.MemberDescriptorType = ...

    joins: types.MemberDescriptorType = ...

    __wrapped__: types.MemberDescriptorType = ...

    num_plans: getset_descriptor = ...

def set_callback(arg0: str, arg1: object, /) -> None: ...

def enter_trace() -> int: ...

def exit_trace() -> int: ...

class GradFn:
    def name(self) -> str: ...

    @property
    def source(self) -> str: ...

    @property
    def next_functions(self) -> tuple: ...

    @property
    def variable(self) -> object: ...

    def __getattr__(self, arg: str, /) -> object: ...

    def __eq__(self, other: object | None) -> bool: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

def grad_fn(arg: object, /) -> object: ...

def backward(roots: list, grads: list, inputs: object | None, retain_graph: bool, create_graph: bool) -> object: ...

def has_other_leaves(roots: list, inputs: list) -> bool: ...

def backward_from_loss(tensor: object, retain_graph: bool) -> bool: ...

def record_python(arg0: object, arg1: str, arg2: list, arg3: list, /) -> None: ...

def hooks_of(arg: object, /) -> object: ...

def hooks_after(arg: object, /) -> object: ...

def hooks_of_record(record: GradFn, before: bool) -> object: ...

def retain_grad_flag(arg: object, /) -> bool: ...

def set_retain_grad_flag(arg: object, /) -> None: ...

def grad_enabled() -> bool: ...

def set_grad_enabled(arg: bool, /) -> bool: ...

def inference_enabled() -> bool: ...

def set_inference(arg: bool, /) -> bool: ...

def tensors_override() -> bool: ...

def overrides_disabled() -> bool: ...

def set_tensors_override(arg: bool, /) -> None: ...

def set_overrides_disabled(arg: bool, /) -> bool: ...

def anomaly_detection() -> bool: ...

def set_anomaly_detection(arg: bool, /) -> bool: ...

def detach(arg: object, /) -> object: ...

def drop_history(arg: object, /) -> None: ...

def share_history(arg0: object, arg1: object, /) -> None: ...

def take_geometry(arg0: object, arg1: object, /) -> None: ...

def view_base(arg: object, /) -> object: ...

def note_write(arg: object, /) -> None: ...

def is_inference(arg: object, /) -> bool: ...

def captured_source() -> str: ...

class CallRecord:
    def __init__(self) -> None: ...

    @property
    def problem(self) -> str: ...

    @property
    def programs(self) -> int: ...

    def add_stream(self, generator: object | None) -> None: ...

    def floats(self) -> list: ...

    @property
    def num_outputs(self) -> int: ...

    def output_of(self, arg: object, /) -> int: ...

class TensorSources:
    def __init__(self) -> None: ...

    def add(self, from_: int, index: int, object: object | None, key: object | None, tensor: object) -> None: ...

    def retarget(self, arg0: int, arg1: object, arg2: object, /) -> None: ...

    def __len__(self) -> int: ...

class CallReplay:
    def __init__(self, arg0: CallRecord, arg1: TensorSources, /) -> None: ...

    def describe(self, arg0: CallRecord, arg1: list, arg2: object, arg3: object, arg4: list, arg5: list, arg6: object, /) -> str: ...

    def run(self, arg0: object, arg1: object, /) -> object: ...

    @property
    def why(self) -> str: ...

    @property
    def broken(self) -> int: ...

    @property
    def replays(self) -> int: ...

def broken_facts(arg: list, /) -> list: ...

def class_version(arg: object, /) -> int: ...

def is_python_class(arg0: object, arg1: object, /) -> bool: ...

def same_value(arg0: object, arg1: object, /) -> bool: ...

def history_state(arg: object, /) -> int: ...

def has_hooks(arg: object, /) -> bool: ...

class ProgramCache:
    def __init__(self, arg: object, /) -> None: ...

    def set_watch(self, arg: object, /) -> None: ...

    def set_remote(self, arg: object, /) -> None: ...

    @property
    def num_traces(self) -> int: ...

    @property
    def num_programs(self) -> int: ...

    @property
    def num_predicted(self) -> int:
        """How many programs ran for calls that were predicted."""

    def program_runs(self) -> list: ...

    def clear(self) -> None: ...

class PauseCapture:
    def __init__(self) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *args) -> None: ...

class PlanList:
    pass

class BodyScope:
    def __init__(self, arg: str, /) -> None: ...

    def enter(self, inputs: Sequence[tuple[int, Sequence[int], bool]], device: int = 0) -> list: ...

    def exit(self) -> None: ...

    def locate(self, arg: object, /) -> tuple: ...

    def key(self) -> bytes: ...

    def leaves(self) -> list: ...

    def calls(self) -> list: ...

    def numbers(self) -> list: ...

    def ints(self) -> list: ...

    def default_generator_only(self) -> bool: ...

    def plans(self) -> PlanList: ...

def in_body() -> bool: ...

def captured_calls() -> int:
    """
    How many calls the compiled function that runs now has captured; -1 outside.
    """

def recording() -> bool:
    """
    Whether the compiled function that runs now is to be replayed: nothing may be read that is known only now.
    """

def capturing() -> bool: ...

def pending(arg: object, /) -> bool: ...

def unsettled(arg: object, /) -> bool: ...

def note_rebinding(members: dict, name: str, value: object) -> None:
    """
    Before members[name] = value: a value that a compiled function never gets to compute is taken back.
    """

def materialize(arg: object, /) -> None: ...

def call_captured(programs: ProgramCache, whole: bool, record: CallRecord | None, fn: object, args: tuple, kwargs: dict, ended: object) -> object:
    """
    fn(*args, **kwargs) with its operators captured, and run as programs at the end. ended(error, lines) is called where that fails, or something was printed.
    """

def compiled_lines() -> object:
    """
    What the compiled function that runs now has printed: a list to add to; None outside.
    """

def compiled_segments() -> int:
    """
    How many programs the compiled function that runs now has ended; -1 outside.
    """

def module_ranges() -> list:
    """
    Modules that the compiled function that runs now has called: [(first operator, the one behind the last, module)], as they were called; -1 instead of the second where one still runs.
    """

def open_module(module: object) -> int:
    """A module begins; a number for close_module."""

def close_module(number: int, failed: bool = False) -> None: ...

class BatchScope:
    def __init__(self) -> None: ...

    def enter(self) -> None: ...

    def exit(self, run: bool) -> None: ...

    def vertices(self, offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], children: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], functions: dict, inputs: list, states: int) -> list: ...

    def set_example(self, arg: int, /) -> int: ...

    @property
    def groups(self) -> int: ...

    @property
    def calls(self) -> int: ...

def run_frontiers(offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], children: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], functions: dict, inputs: list, states: list) -> object: ...

def set_rows_as_on_devices(arg: bool, /) -> bool: ...

def set_cells_worth_compiling(arg: int, /) -> int: ...

def batching() -> bool: ...

def look_up_members(cls: object) -> None: ...

def apply_rule(params: object, first: int, state: object, names: tuple, rule: object, settings: tuple, counts: object | None = None, count: object | None = None) -> int:
    """
    Calls rule(p, *its state, its gradient, *settings) for each parameter from the first on that has a gradient, as long as nothing is unusual about one; the number of that one, or how many there are.
    """

class FlowTask:
    pass

class Cancellation:
    def __init__(self) -> None: ...

    def cancel(self) -> None: ...

    @property
    def cancelled(self) -> bool: ...

class VariableCell:
    def __init__(self) -> None: ...

    @property
    def tensor(self) -> object: ...

    @tensor.setter
    def tensor(self, arg: object | None, /) -> None: ...

class RunLock:
    def __init__(self) -> None: ...

    def acquire_read(self) -> None: ...

    def acquire_write(self) -> None: ...

    def release_read(self) -> None: ...

    def release_write(self) -> None: ...

class FlowGraph:
    def run(self, sources: list, cells: Sequence[VariableCell], lock: RunLock, seed: int, threads: int, cancellation: Cancellation, context: object | None = None) -> FlowOutcome: ...

    @property
    def num_nodes(self) -> int: ...

class FlowOutcome:
    @property
    def results(self) -> list: ...

    @property
    def error(self) -> object: ...

    @property
    def failed_node(self) -> int: ...

    @property
    def executed(self) -> int: ...

    @property
    def skipped(self) -> int: ...

    @property
    def most_iterations(self) -> int: ...

class FlowBuilder:
    def __init__(self) -> None: ...

    def add(self, kind: int, inputs: Sequence[tuple[int, int]], controls: Sequence[int], orders: Sequence[int], num_outputs: int, task: FlowTask | None = None, frame: int = -1, constant: bool = False, parallel: int = 10, always: bool = False) -> int: ...

    def build(self, arg: int, /) -> FlowGraph: ...

def plan_task(function: object, read: Sequence[int], written: Sequence[int]) -> FlowTask: ...

def python_task(function: object, blocking: bool, placed: bool = False) -> FlowTask: ...

class Queue:
    def __init__(self, name: str, dtypes: list, shapes: list, order: int, padding: bool, capacity: int, min_after_dequeue: int, seed: int) -> None: ...

    def enqueue(self, row: tuple, timeout: object | None = None, cancellation: Cancellation | None = None) -> int: ...

    def enqueue_many(self, columns: tuple, timeout: object | None = None, cancellation: Cancellation | None = None) -> int: ...

    def dequeue(self, timeout: object | None = None, cancellation: Cancellation | None = None) -> object: ...

    def dequeue_many(self, count: int, fewer: bool, timeout: object | None = None, cancellation: Cancellation | None = None) -> object: ...

    def close(self, cancel_pending: bool) -> None: ...

    def size(self) -> int: ...

    @property
    def closed(self) -> bool: ...

    @property
    def capacity(self) -> int: ...

    def counts(self) -> dict: ...

def library_call(name: str, inputs: list, outputs: list, ints: Sequence[int] = [], floats: Sequence[float] = [], repeat: int = 1) -> list[int]:
    """
    Runs a library routine on NumPy arrays; writes the outputs in place and returns the routine's integer results.
    """

def library_names() -> list[str]: ...

def blas_backend() -> str:
    """
    What serves matrix products and convolutions: onednn, openblas or loops.
    """

def num_threads() -> int: ...

def deterministic() -> bool: ...

def set_deterministic(on: bool) -> None: ...

def set_num_threads(n: int) -> None: ...

def time_products(kind: int, runs: int) -> tuple[list[float], list[float]]:
    """
    Seconds of a typical product of a kind, by our own code and by oneDNN (Note [Choice of products]).
    """

def chosen_own_products(kind: int) -> bool | None:
    """
    Whether our own code was chosen for a kind of products; None before a choice was made.
    """

def choose_products(kind: int, own: bool, again: bool = False) -> None:
    """
    Chooses who computes a kind of products, by a measurement; again: whatever was chosen before.
    """

def force_products(kind: int, own: bool | None) -> None:
    """For this process, instead of what was chosen; None: no longer."""

def keep_choices_in(path: str) -> None:
    """
    The file of what is chosen by measuring (Note [Choices stay]); empty: it is kept nowhere.
    """

def product_kind(batch: int, m: int, n: int, k: int, a: tuple[int, int], b: tuple[int, int]) -> int:
    """The kind of a product, given the strides of its operands."""

def prefers_own_products(kind: int) -> bool: ...

def suggests_own_products(kind: int) -> bool: ...

def prefer_convolutions(way: int) -> None:
    """
    One way (tandem/machine/tune.py, WAYS) for all convolutions that it takes; -1: as measured, or suggested.
    """

def set_convolution_budget(seconds: float) -> None:
    """
    Seconds that this process may spend on measuring convolutions from now on.
    """

def library_isa() -> str: ...

def set_switch(name: str, value: int) -> None: ...

def load_object(object: bytes, entry: str) -> int:
    """
    Address of a function of an ELF object, loaded for the life of the process.
    """

def link_object(object: bytes, entry: str, address: int, undefined: int = 0) -> tuple[bytes, int]:
    """
    What load_object would put at `address`, for any machine, and where the function begins in it. Undefined symbols are all taken to be at `undefined`.
    """

def own_symbols() -> dict:
    """
    Addresses, by name, of our own routines that kernels call: for loaders other than load_object.
    """

def preload(path: str) -> None:
    """Begins to load a shared library, beside whatever comes next."""

def finish_preload() -> None:
    """Waits until what preload() began is there."""

def cpu_id() -> str:
    """Names the CPU as far as generated code cares."""

def cpu_level() -> str:
    """
    The level of processors whose code is as good here as what is compiled here, or ''.
    """

def write_tensors(fd: int, tensors: Sequence[Tensor], offsets: Sequence[int], flush: bool = False) -> list[int]:
    """
    Writes contiguous tensors at offsets of a file; gives the CRC-32C of each.
    """

def read_tensors(fd: int, tensors: Sequence[Tensor], offsets: Sequence[int]) -> list[int]:
    """
    Fills contiguous tensors from offsets of a file; gives the CRC-32C of each.
    """

def checksum_tensors(tensors: Sequence[Tensor]) -> list[int]:
    """The CRC-32C of each contiguous tensor."""

def crc32c(data: bytes, before: int = 0) -> int:
    """The CRC-32C of bytes."""

def take_rows(tensor: Tensor, indices: Sequence[int], out: object | None = None) -> Tensor:
    """The rows of these numbers, copied to a new tensor or to `out`."""

def stack_rows(tensors: Sequence[Tensor], out: object | None = None) -> Tensor:
    """
    Tensors of one shape and type, copied on top of each other to a new tensor or to `out`.
    """

class SampleSeeds:
    """Sets the process's random generators for samples."""

    def __init__(self, python: object | None, offset: int, numpy: object | None, address: int) -> None: ...

    def begin(self, epoch: int, index: int) -> bool: ...

    def save(self) -> object: ...

    def restore(self, state: bytes) -> None: ...

def twister_words(key: int) -> tuple: ...

def nonzero(x: Tensor, as_tuple: bool) -> object:
    """
    Positions of elements that are not zero: (count, ndim), or one tensor for each axis. None: take another way.
    """

def masked_select(x: Tensor, mask: Tensor) -> object:
    """
    x[mask], where the mask has the leading axes of x. None: take another way.
    """

def bincount(x: Tensor, minlength: int) -> object:
    """
    How often 0, 1, ... occur in int64 numbers that are not negative. None: take another way.
    """

def unique_consecutive(x: Tensor, inverse: bool, counts: bool) -> object:
    """
    (values, numbers or None, counts or None) of the runs of equal elements of a row-major vector. None: take another way.
    """

def triangle_indices(rows: int, columns: int, offset: int, lower: bool) -> Tensor:
    """(2, count): positions of the lower or upper triangle of a matrix."""

def flat_alike(tensors: tuple) -> object:
    """
    (kind, *views as vectors) of tensors on a device that lie alike; None where they do not.
    """

class SharedMemory:
    """Memory without a name that several processes can map."""

    def __init__(self, bytes: int) -> None: ...

    @staticmethod
    def attach(fd: int) -> SharedMemory:
        """
        The memory behind a descriptor from another process; the descriptor is taken over.
        """

    @property
    def bytes(self) -> int: ...

    @property
    def fd(self) -> int: ...

    @property
    def inode(self) -> int: ...

    @property
    def users(self) -> int:
        """How many storages of this process are on it."""

    def close_fd(self) -> None:
        """Closes the descriptor; the memory stays mapped."""

    def tensor(self, dtype: object, shape: object, strides: object | None = None, offset: int = 0) -> Tensor:
        """A tensor at an offset in bytes, on this memory and keeping it."""

def storage_references(tensor: Tensor) -> int:
    """How many tensors and others hold the memory of a tensor."""

def shared_memory_of(tensor: Tensor) -> object:
    """
    (memory, offset in bytes) of a tensor on shared memory; None for others.
    """

def cuda_unavailable() -> str:
    """Why CUDA cannot be used; empty if it can."""

def cuda_device_count() -> int: ...

def cuda_properties(arg: int, /) -> tuple: ...

def cuda_driver_version() -> int: ...

def cuda_synchronize(device: int) -> None: ...

def cuda_synchronize_stream(arg0: int, arg1: int, /) -> None: ...

def cuda_stream_done(arg: int, /) -> bool: ...

def cuda_current_stream(arg: int, /) -> int: ...

def cuda_set_stream(arg0: int, arg1: int, /) -> None: ...

def cuda_share_streams() -> None: ...

def cuda_memory_stats(arg: int, /) -> dict: ...

def cuda_memory_info(arg: int, /) -> tuple: ...

def cuda_reset_peak_memory(arg: int, /) -> None: ...

def cuda_empty_cache(arg: int, /) -> None: ...

def cuda_set_memory_fraction(arg0: int, arg1: float, /) -> None: ...

def cuda_set_expandable_segments(arg0: int, arg1: bool, /) -> None: ...

def cuda_expandable_segments(arg: int, /) -> bool: ...

def cuda_load_module(image: bytes, names: Sequence[str], device: int, shared: int = 0) -> list[int]: ...

def cuda_record_stream(arg0: object, arg1: int, /) -> None: ...

def move(tensor: object, device: int, non_blocking: bool = False) -> object:
    """A copy on the CPU (0) or on cuda:(device - 1), without history."""

def pin(arg: object, /) -> object: ...

def is_pinned(arg: object, /) -> bool: ...

def device_index(arg: object, /) -> int:
    """0 for the CPU, k for cuda:(k - 1)."""

def default_device() -> int: ...

def set_default_device(arg: int, /) -> int: ...

def set_device_scope(arg: int, /) -> int: ...

def axes_first() -> bool: ...

def autocast_mode() -> int: ...

def set_autocast_mode(arg: int, /) -> int: ...

def cuda_open_products_ahead(device: int, dtype: int, paths: Sequence[str]) -> None:
    """
    Begins to open cuBLASLt from the first of `paths`, beside whatever comes next, once a process.
    """

def cuda_set_allow_tf32(arg: bool, /) -> None: ...

def cuda_allow_tf32() -> bool: ...

class CudaStream:
    def __init__(self, arg0: int, arg1: int, /) -> None: ...

    @property
    def device(self) -> int: ...

    @property
    def handle(self) -> int: ...

class CudaEvent:
    def __init__(self, arg0: int, arg1: bool, /) -> None: ...

    def record(self, arg: int, /) -> None: ...

    def wait(self, arg: int, /) -> None: ...

    def done(self) -> bool: ...

    def synchronize(self) -> None: ...

    def elapsed(self, arg: CudaEvent, /) -> float: ...

def profile_start() -> bool:
    """Begins to record what runs; False if that was going on already."""

def profile_stop() -> tuple:
    """Ends the recording: (entries, how many were left out)."""

class Board:
    """The memory that the ranks of a group on one host share."""

    @staticmethod
    def create(size: int, shared: bool) -> Board: ...

    @staticmethod
    def attach(descriptor: int) -> Board:
        """Takes the descriptor over."""

    @property
    def descriptor(self) -> int: ...

    @property
    def size(self) -> int: ...

class Communicator:
    """A rank's part in a group."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def queue_up(self) -> None:
        """
        A collective is given to a thread; those that are called from now on come after it.
        """

    def queue_done(self) -> None:
        """That thread has run one."""

    def leave(self, failed: bool, text: str) -> None: ...

    def records(self) -> list: ...

    def await_question(self, seconds: float) -> str: ...

    def answer(self, where: str) -> None: ...

    def set_timeout(self, seconds: float) -> None: ...

class DeviceCommunicator(Communicator):
    """A rank's part in a group, also for tensors on devices."""

    def require_nccl(self) -> None:
        """CUDA tensors never go through host memory."""

class Member(DeviceCommunicator):
    """A rank of a group on one host."""

    def __init__(self, board: Board, rank: int, names: Sequence[int]) -> None: ...

    def connect(self, rank: int, pid: int, heap: int) -> None: ...

class World:
    """The ranks that were formed together on several hosts."""

    def __init__(self) -> None: ...

    def tell(self, failure: str) -> None:
        """A rank has failed: whoever waits gives up."""

class GlooMesh:
    """Connections to all other ranks, by Gloo."""

    def __init__(self, library: str, rank: int, size: int, address: str, place: str, set: object, get: object) -> None: ...

def opens_nccl() -> bool:
    """Whether NCCL can be opened."""

def begin_mpi(path: str) -> str:
    """
    Opens MPI's library and has this process join the others; gives the library's name.
    """

class HostsMember(DeviceCommunicator):
    """A rank of a group on several hosts."""

    @staticmethod
    def by_mpi(world: World, ranks: Sequence[int], rank: int, tag: int, is_world: bool) -> HostsMember:
        """All ranks of the group make it at the same time."""

    @staticmethod
    def by_gloo(world: World, mesh: GlooMesh, ranks: Sequence[int], rank: int, tag: int) -> HostsMember: ...

    def let_send_by_device(self) -> None:
        """As all ranks have NCCL."""

    def note_left(self, rank: int, number: int) -> None: ...

    @property
    def entered(self) -> int:
        """How many calls there were."""

    def connect(self, ask: object, report: object) -> None:
        """
        ask(number) says where other ranks are; report(text) that this one gave up.
        """

class CallerSource:
    """The user's line that called, for work that another thread does."""

    def __init__(self) -> None: ...

    def enter(self) -> None:
        """From now on it is the line of this thread,"""

    def leave(self) -> None:
        """up to here."""

class RankContext:
    """The groups of a rank, by token."""

    def __init__(self, rank_in_process: int = 0) -> None: ...

    def put(self, token: int, communicator: Communicator | None) -> None: ...

    @staticmethod
    def enter(context: RankContext | None) -> None:
        """Has this thread be that rank."""

    @staticmethod
    def set_default(context: RankContext | None) -> None: ...

def serve_queue() -> None:
    """This thread runs what queue_up announces."""

def begin_shared_heap() -> int:
    """
    The descriptor of memory that other processes can map; -1: there is none.
    """

def pause_shared_heap() -> None: ...

def move_to_shared_heap(tensor: Tensor) -> bool:
    """
    Moves a tensor whose memory nobody else has to where other ranks can look at it, if its size is one that collectives have met; whether that was done.
    """

def reduction_is_defined(dtype: int, reduction: int) -> bool: ...
