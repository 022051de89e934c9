// What the runtime calls in Python, and how it hears that this failed.
#pragma once
#include <Python.h>

#include "interpreter.h"

namespace tandem {

// Callbacks that the Python side registers.
struct Callbacks {
  PyObject* compile = nullptr;          // (op, spec list) -> Plan
  PyObject* compile_capture = nullptr;  // (calls, leaves, numbers, ints, outputs, writes, symbolic, report) -> Plan
  PyObject* convert = nullptr;          // (op name, parameter name, object) -> Tensor or number
  PyObject* clone = nullptr;            // OpFunction
  PyObject* add = nullptr;              // OpFunction
  PyObject* add_ = nullptr;             // OpFunction, in place
  PyObject* rebase = nullptr;           // (view): the base's history after an in-place write through a view
  PyObject* refresh_view = nullptr;     // (view): the view's history after a write through its base
  PyObject* select_view = nullptr;      // (base, view) -> Tensor: what the view shows of the base
  PyObject* put_view = nullptr;         // (base, view, value) -> base, written where the view shows it
  PyObject* check_finite = nullptr;     // (op name, tensors, where)
  PyObject* extras = nullptr;           // (op, args, kwargs): a call with out= and the like, which all operators take
  PyObject* overridden = nullptr;       // (op, args, kwargs): a failed call with an object that has __torch_function__
  PyObject* in_parts = nullptr;         // (op, arguments): a call with a sparse or nested tensor among its arguments
  PyObject* to_dense = nullptr;         // (tensor in parts) -> Tensor
  PyObject* join_backward = nullptr;    // (backward function, that of the record before it) -> OpFunction or None
  PyObject* host_call = nullptr;        // (form, operands) -> results; see bindings/host_call.cc
  PyObject* batch_cell = nullptr;       // (calls of a cell, flags) -> OpFunction; see autobatch/cells.h
  PyObject* batch_plan = nullptr;       // (what Python knows of a plan, flags) -> OpFunction; see autobatch/batch.h
  PyObject* contiguous = nullptr;       // OpFunction
  PyObject* concat = nullptr;           // OpFunction
  PyObject* index_basic = nullptr;      // OpFunction; see bindings/basic_index.h
  PyObject* place_row = nullptr;        // (sum or None, gradient, block's shape, shape, strides, offset) -> Tensor
  PyObject* take_row = nullptr;         // (block, row) -> Tensor
  PyObject* take_view = nullptr;        // (flat tensor, shape, strides, offset) -> Tensor
  PyObject* add_matmul = nullptr;       // (sum or None, left, right) -> Tensor: the sum and left.T @ right
  PyObject* add_at = nullptr;           // (sum, index, updates): each update added to a row of the sum
  PyObject* sharded = nullptr;          // (op, spec list, tensors) -> (tensors, whether a tuple, counters used)
  PyObject* gather = nullptr;           // (sharded tensor) -> Tensor with all of its elements
  PyObject* add_sharded = nullptr;      // (a, b) -> the sum of two gradients of one sharded tensor
  PyObject* sharded_grad = nullptr;     // (leaf, gradient) -> the gradient with the placements of the leaf
  PyObject* load_kernels = nullptr;     // (kernels, device) -> [CudaFunction]
  PyObject* own_kernel = nullptr;       // (kind, argument, device) -> address of a function
  PyObject* axes_first = nullptr;       // () -> bool, or null: whether the caller's promotion is PyTorch's
  PyObject* library_paths = nullptr;    // (name) -> where a library of NVIDIA's may be
};
extern Callbacks callbacks;

}  // namespace tandem
