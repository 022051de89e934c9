// The routine "host_call": a step of a program that Python computes, on the host (tandem/ops/host_call.py).
#include <Python.h>

#include <string>

#include "autobatch/rows.h"
#include "callbacks.h"
#include "check.h"
#include "interpreter.h"
#include "library/registry.h"
#include "tensor/tensor.h"

namespace tandem {

namespace {

// Needs the lock: the exception that is set, as one of ours.
[[noreturn]] void fail_as_python() {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyObject* text = value ? PyObject_Str(value) : nullptr;
  const char* utf8 = text ? PyUnicode_AsUTF8(text) : nullptr;
  const std::string message = utf8 ? utf8 : "a step in Python failed";
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  PyErr_Clear();
  fail(ErrorKind::Value, message);
}

// ints: which of the operator's forms it is. Operands are copied: what Python keeps of them outlives the program's
// memory.
void run_host_call(const library::Call& call) {
  if (library::preparing()) return;
  const Locked locked;
  PyObject* operands = PyList_New(call.num_inputs);
  for (int i = 0; i < call.num_inputs; ++i) {
    const View& v = call.inputs[i];
    Tensor* copy = new_contiguous(v.dtype, v.ndim, v.shape);
    copy_row(v, copy->view, 0);
    PyList_SET_ITEM(operands, i, reinterpret_cast<PyObject*>(copy));
  }
  PyObject* results = PyObject_CallFunction(callbacks.host_call, "iN", static_cast<int>(call.ints[0]), operands);
  if (!results) fail_as_python();
  bool fits = PyList_Check(results) && PyList_GET_SIZE(results) == call.num_outputs;
  for (int i = 0; fits && i < call.num_outputs; ++i) {
    const View& to = call.outputs[i];
    PyObject* item = PyList_GET_ITEM(results, i);
    const View* from = is_tensor(item) ? &reinterpret_cast<Tensor*>(item)->view : nullptr;
    fits = from && from->dtype == to.dtype && from->ndim == to.ndim && from->numel() == to.numel();
    if (fits) copy_row(*from, to, 0);
  }
  Py_DECREF(results);
  TD_CHECK(fits, "a step in Python gave results of other types or sizes than it was to");
}

const library::Register host_call("host_call", &run_host_call, false, true);

}  // namespace

}  // namespace tandem
