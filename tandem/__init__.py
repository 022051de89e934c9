"""Tandem: one program, two ways to run it, eagerly or as an optimised dataflow graph.

>>> x = td.tensor([1.0, 2.0], requires_grad=True)
>>> (x * x).sum().backward()
>>> x.grad
tensor([2., 4.])
"""

from importlib import import_module as _import

from tandem import _runtime, dtypes
from tandem.devices import DEVICES as _DEVICES
from tandem.devices import Device, get_default_device, set_default_device
from tandem.devices import Device as device
from tandem.errors import (
    AutogradError,
    AxisError,
    CancelledError,
    CheckpointError,
    DeadlineError,
    DeviceError,
    DistributedError,
    DivisionError,
    DTypeError,
    IndexRangeError,
    IndexTypeError,
    IntegerRangeError,
    InternalError,
    LinAlgError,
    NoProcessGroupError,
    OutOfMemoryError,
    QueueClosedError,
    ShapeError,
    ShardingError,
    TandemError,
    TaskError,
    UnsupportedError,
    ValueRangeError,
    WorkerError,
    install_hook,
)  # fmt: skip
from tandem.forks import compiling as _compiling
from tandem.machine.preload import preload_compiler as _preload_compiler
from tandem.switches import switches

_preload_compiler()
_runtime.set_dtypes(list(dtypes.ALL))
_runtime.set_devices(_DEVICES)

with _compiling():  # modules are thousands of objects that stay: no garbage is looked for among them
    from tandem import autograd, cuda, memory
    from tandem.autocast import GradScaler, autocast, is_autocast_enabled
    from tandem.autograd import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
    from tandem.autograd.gradients import grad, value_and_grad, vjp
    from tandem.compiling.autobatch import autobatch
    from tandem.compiling.compiled import compile, print
    from tandem.connect import connect as _connect
    from tandem.control import associative_scan, cond, fori_loop, map, scan, switch_case, while_loop
    from tandem.dtypes import (
        bfloat16,
        complex64,
        complex128,
        float16,
        float32,
        float64,
        int8,
        int16,
        int32,
        int64,
        uint8,
        uint16,
        uint32,
        uint64,
    )  # fmt: skip
    from tandem.layouts import jagged, sparse_coo, sparse_csr, strided
    from tandem.names import missing as _missing
    from tandem.ops.define import FUNCTIONS as _FUNCTIONS
    from tandem.ops.memory_format import channels_last, channels_last_3d, contiguous_format, preserve_format
    from tandem.ops.methods import attach as _attach_operators
    from tandem.ops.random import Generator, default_generator
    from tandem.program.report import programs
    from tandem.sizes import Size
    from tandem.tensors import array_api as _array_api
    from tandem.tensors.array_api import VERSION as __array_api_version__
    from tandem.tensors.array_api import __array_namespace_info__
    from tandem.tensors.constructors import *  # noqa: F403
    from tandem.tensors.dtype_functions import *  # noqa: F403
    from tandem.tensors.methods import Tensor
    from tandem.tensors.methods import attach as _attach_methods
    from tandem.transforms import checkpoint as remat
    from tandem.transforms import hessian, jacfwd, jacrev, jvp, linearize, vmap

globals().update(_FUNCTIONS)
globals().update(dtypes.TORCH_NAMES)
bool, dtype = dtypes.bool_, dtypes.DType
e, pi, inf, nan, newaxis = 2.718281828459045, 3.141592653589793, 1e400, 1e400 - 1e400, None
_attach_operators()
_attach_methods()
_array_api.namespace = _import(__name__)
_connect()
install_hook()

__version__ = "0.1.0"

_LAZY = (
    "amp",
    "backends",
    "checkpoint",
    "compiler",
    "data",
    "distributed",
    "distributions",
    "export",
    "fft",
    "func",
    "generation",
    "jit",
    "linalg",
    "masked",
    "models",
    "multiprocessing",
    "nested",
    "nn",
    "onnx",
    "optim",
    "profiler",
    "quantization",
    "training",
    "random",
    "serve",
    "session",
    "signal",
    "sparse",
    "special",
    "testing",
    "torch",
    "tree",
    "utils",
    "v1",
    "version",
)  # packages that are imported when first used
# Names that are imported when first used, by the module that has them.
_LATE = {
    "tandem.session": (
        "Coordinator", "FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "QueueRunner", "RandomShuffleQueue",
        "Graph", "Print", "Saver", "Session", "Variable", "assign", "assign_add", "assign_sub", "colocate_with",
        "control_dependencies", "default_graph",
        "function", "global_variables_initializer", "gradients", "graph_ops", "group", "name_scope", "placeholder", "py_func",
        "trainable_variables",
    ),
    # functions of networks that PyTorch has in its main namespace too
    "tandem.nn.functional": (
        "affine_grid", "channel_shuffle", "cosine_embedding_loss", "ctc_loss", "embedding_bag", "grid_sample",
        "hinge_embedding_loss", "margin_ranking_loss", "max_pool1d_with_indices", "pixel_shuffle", "pixel_unshuffle",
        "poisson_nll_loss", "rrelu", "rrelu_", "triplet_margin_loss",
    ),
    "tandem.sparse.tensor": ("sparse_coo_tensor", "sparse_csr_tensor"),
    "tandem.compiling.vertex_program": ("Structure", "vertex"),
    "tandem.checkpoint": ("load", "save"),
    "tandem.profiler": ("profile",),
    "tandem.benchmarking": ("benchmark",),
    "tandem.testing.bisect": ("bisect",),
    "tandem.quantization": ("quantize",),
    "tandem.distributed": ("parallelize",),
    "tandem.backends": ("get_float32_matmul_precision", "set_float32_matmul_precision"),
}  # fmt: skip
_HOME = {name: module for module, names in _LATE.items() for name in names} | dict.fromkeys(_LAZY, "")


def __getattr__(name):
    home = _HOME.get(name)
    if home is None:
        raise _missing("tandem", name)
    return getattr(_import(home), name) if home else _import(f"tandem.{name}")
