"""Connects lower layers to what they call in upper ones: the C++ dispatcher to the Python that traces and compiles, and hooks.py.

Heavy modules are imported when first needed.
"""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes, hooks
from tandem.autodiff.reverse import vjp
from tandem.autograd.lazy_sums import add_at, add_matmul
from tandem.autograd.views import record_view
from tandem.errors import DTypeError, IntegerRangeError, module_calls
from tandem.forks import collect, compiling, rest
from tandem.graph.ir import Value, kept_builders
from tandem.machine import preload
from tandem.ops.extras import call
from tandem.ops.host_call import run_step
from tandem.ops.prepare import does_not_fit
from tandem.tracing.describe import capture_of, spec_of
from tandem.transforms.checkpoint import checkpoint


def _compile(function, descriptions):
    spec = [spec_of(d) for d in descriptions]
    with compiling():
        if (
            _runtime.capturing() and _runtime.compiled_lines() is not None
        ):  # asked for them, the call tells of its end (_ended)
            rest()
        if preload.watches_calls:
            _load_ahead(function, spec)
        from tandem.tracing.compile import compile_plan

        with kept_builders():
            return compile_plan(function, spec)


def _load_ahead(function, spec):
    """Has the compiler begin to load if this call will need it, even before what traces and lowers is imported."""
    from tandem.machine import prebuilt

    on_device = any(item.kind == "tensor" and item.device for item in spec)
    if not on_device and not prebuilt.holds(prebuilt.call_key(function, spec)):
        preload.begin_compiling()


def _compile_capture(*description):
    with compiling():
        import tandem.tracing.compile  # noqa: F401  # first, as _compile does: Note [Imports in threads] in preload.py
        from tandem.tracing.program import compile_capture

        try:
            with kept_builders():
                return compile_capture(capture_of(*description))
        finally:
            collect()


def _convert(op: str, parameter: str, value, meets: str | None = None):
    """An argument that is neither tensor nor plain number, for a tensor parameter.

    NotImplemented makes the call a node of the deferred graph that the argument belongs to.
    meets: a Python int met a tensor of this dtype, which has no room for it.
    """
    if meets is not None:
        raise does_not_fit(op, parameter, value, meets)
    if isinstance(value, Value):
        return NotImplemented
    module = type(value).__module__
    if module == "numpy":
        import numpy

        if isinstance(value, numpy.generic):
            return value.item()
        return _runtime.from_numpy(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, complex):
        return complex(value)
    if isinstance(value, int) or hasattr(value, "__index__"):
        value = int(value)
        if -(2**63) <= value < 2**63:
            return value
        if 0 < value < 2**64:  # only tensors of uint64 can mean it
            return _runtime.from_data(value, dtypes.uint64)
        raise IntegerRangeError(op, f"{parameter} is a Python int beyond 64 bits")
    if hasattr(value, "__dlpack__"):
        return _runtime.from_dlpack(value)
    raise DTypeError(
        op,
        f"{parameter} is a {type(value).__name__}; it must be a tensor or a number",
        fix=f"convert it: td.tensor({parameter})" if isinstance(value, (list, tuple)) else None,
    )


def _extras(function, args, kwargs):
    return call(function, args, kwargs)


def _in_parts(function, arguments):
    from tandem.tensors.parts import call

    return call(function, arguments)


def _to_dense(x):
    return x.to_dense()


def _join_backward(first, second, output: int):
    with compiling():
        from tandem.tracing.joined import joined, with_sum

        return with_sum(first) if second is None else joined(first, second, output)


def _load_kernels(kernels, device: int):
    with compiling():
        from tandem.codegen.cuda.compile import load_kernels

        return load_kernels(kernels, device)


def _own_kernel(kind: str, argument: int, device: int):
    with compiling():
        from tandem.codegen.cuda.compile import own_kernel

        return own_kernel(kind, argument, device)


def _library_paths(name: str):
    from tandem.codegen.cuda.libraries import candidates

    return list(candidates(name))


def _batch_plan(plan, flags):
    with compiling():
        from tandem.transforms.grouped import group_function

        return group_function(plan, flags)


def _batch_cell(calls, flags):
    with compiling():
        from tandem.transforms.cells import cell_function

        return cell_function(calls, flags)


def _place_row(*args):
    from tandem.transforms.grouped import place_row

    return place_row(*args)


def _take_view(*args):
    from tandem.transforms.grouped import take_view

    return take_view(*args)


def _run_graph(graph, inputs, memory_budget):
    from tandem.tracing.run_graph import run_graph

    return run_graph(graph, inputs, memory_budget)


def _graph_reports(graph):
    from tandem.tracing.run_graph import reports_of

    return reports_of(graph)


def _read_deferred(found):
    from tandem.session.serialize import read

    return read(found)


def _compile_for(function, device: str):
    from tandem.pjrt import compile_for

    return compile_for(function, device)


def _replayed_class() -> type:
    from tandem.replay import Replayed

    return Replayed


def _scalar_builder():
    from tandem.codegen.expr import ScalarBuilder, compute_dtype

    return ScalarBuilder(), compute_dtype


def _kernel_address(kernel):
    from tandem.codegen.compile import address

    return address(kernel)


def _sparse_gather(x, axis, index):
    from tandem.sparse.lookup import sparse_gather

    return sparse_gather(x, axis, index)


def _from_dense(x, sparse_dim, layout):
    from tandem.sparse.tensor import from_dense

    return from_dense(x, sparse_dim, layout)


def _masked_by(x, mask):
    from tandem.sparse.tensor import masked_by

    return masked_by(x, mask)


def _share_memory(tensor):
    from tandem.multiprocessing import share_memory_

    return share_memory_(tensor)


def connect():
    hooks.run_graph, hooks.graph_reports, hooks.read_deferred = _run_graph, _graph_reports, _read_deferred
    hooks.compile_for, hooks.scalar_builder, hooks.kernel_address = _compile_for, _scalar_builder, _kernel_address
    hooks.record_view, hooks.checkpoint, hooks.vjp = record_view, checkpoint, vjp
    hooks.sparse_gather, hooks.from_dense, hooks.masked_by = _sparse_gather, _from_dense, _masked_by
    hooks.share_memory, hooks.replayed_class = _share_memory, _replayed_class
    _runtime.set_callback("batch_plan", _batch_plan)
    _runtime.set_callback("batch_cell", _batch_cell)
    _runtime.set_callback("host_call", run_step)
    _runtime.set_callback("place_row", _place_row)
    _runtime.set_callback("take_view", _take_view)
    _runtime.set_callback("add_matmul", add_matmul)
    _runtime.set_callback("add_at", add_at)
    _runtime.set_callback("take_row", lambda block, row: block[row])
    _runtime.set_callback("contiguous", F.contiguous)
    _runtime.set_callback("concat", F.concat)
    _runtime.set_callback("index_basic", F.index_basic)
    _runtime.set_callback("extras", _extras)
    _runtime.set_callback("in_parts", _in_parts)
    _runtime.set_callback("to_dense", _to_dense)
    _runtime.set_callback("compile", _compile)
    _runtime.set_callback("compile_capture", _compile_capture)
    _runtime.set_callback("convert", _convert)
    _runtime.set_callback("join_backward", _join_backward)
    _runtime.set_callback("clone", F.clone)
    _runtime.set_callback("add", F.add)
    _runtime.set_callback("add_", F.add_)
    _runtime.set_callback("load_kernels", _load_kernels)
    _runtime.set_modules_here(module_calls.here)
    module_calls.module_ranges = _runtime.module_ranges
    _runtime.set_callback("own_kernel", _own_kernel)
    _runtime.set_callback("library_paths", _library_paths)
