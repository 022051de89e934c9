// Calls of compiled functions for Python: what tandem/compiling/compiled.py is made of.
#include "capture/compiled_call.h"

#include <nanobind/nanobind.h>

#include <memory>
#include <utility>

#include "bindings/bindings.h"
#include "capture/capture.h"
#include "modes.h"
#include "raise.h"

namespace nb = nanobind;

namespace tandem {

namespace {

struct SpareCapture {  // that of the function, unless a call of it is being made already
  SpareCapture(ProgramCache& programs, bool whole, CallRecord* record)
      : programs(programs),
        owned(programs.spare ? std::move(programs.spare) : std::make_unique<Capture>(&programs)),
        outer(std::exchange(active_capture, owned.get())) {
    owned->whole = whole;
    owned->record = record;
    owned->thread = std::this_thread::get_id();
  }
  ~SpareCapture() {
    active_capture = outer;
    owned->start_over();
    programs.spare = std::move(owned);
  }
  SpareCapture(const SpareCapture&) = delete;
  ProgramCache& programs;
  std::unique_ptr<Capture> owned;
  Capture* outer;
};

// What was captured runs also where the function failed. An error that comes of it has the first one as its context.
bool run_captured(Capture& capture) {
  PyObject *type, *first, *trace;
  PyErr_Fetch(&type, &first, &trace);
  const bool done = guarded(false, [&] {
    capture.flush(Capture::End::Return);
    return true;
  });
  if (done) {
    PyErr_Restore(type, first, trace);
    return true;
  }
  if (!type) return false;
  PyErr_NormalizeException(&type, &first, &trace);
  if (trace) PyException_SetTraceback(first, trace);
  PyObject *second_type, *second, *second_trace;
  PyErr_Fetch(&second_type, &second, &second_trace);
  PyErr_NormalizeException(&second_type, &second, &second_trace);
  PyException_SetContext(second, first);  // takes it over
  Py_DECREF(type);
  Py_XDECREF(trace);
  PyErr_Restore(second_type, second, second_trace);
  return false;
}

// ended(error, lines): where it failed, or something was printed.
bool tell_end(PyObject* ended, CompiledCall& call) {
  PyObject *type, *error, *trace;
  PyErr_Fetch(&type, &error, &trace);
  if (type) {
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace) PyException_SetTraceback(error, trace);
  }
  PyObject* args[] = {error ? error : Py_None, call.lines ? call.lines : Py_None};
  PyObject* done = PyObject_Vectorcall(ended, args, 2, nullptr);
  if (!done) {
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    return false;
  }
  Py_DECREF(done);
  PyErr_Restore(type, error, trace);
  return true;
}

PyObject* call_captured(ProgramCache& programs, bool whole, CallRecord* record, PyObject* fn, PyObject* args,
                        PyObject* kwargs, PyObject* ended) {
  // Every result is read then: no program would come of it.
  if (anomaly_detection && !programs.remote) [[unlikely]]
    return PyObject_Call(fn, args, kwargs);
  SpareCapture spare(programs, whole, record);
  CompiledCall call(*spare.owned);
  PyObject* result = PyObject_Call(fn, args, kwargs);
  if (!run_captured(*spare.owned)) Py_CLEAR(result);
  active_capture = spare.outer;
  if ((!result || call.lines) && !tell_end(ended, call)) Py_CLEAR(result);
  return result;
}

}  // namespace

void register_compiled_call(nb::module_& m) {
  m.def(
      "call_captured",
      [](ProgramCache& programs, bool whole, CallRecord* record, nb::handle fn, nb::tuple args, nb::dict kwargs,
         nb::handle ended) {
        PyObject* result = call_captured(programs, whole, record, fn.ptr(), args.ptr(), kwargs.ptr(), ended.ptr());
        if (!result) nb::raise_python_error();
        return nb::steal(result);
      },
      nb::arg("programs"), nb::arg("whole"), nb::arg("record").none(), nb::arg("fn"), nb::arg("args"),
      nb::arg("kwargs"), nb::arg("ended"),
      "fn(*args, **kwargs) with its operators captured, and run as programs at the end. ended(error, lines) is called "
      "where that fails, or something was printed.");
  m.def(
      "compiled_lines",
      []() -> nb::object {
        if (!compiled_call) return nb::none();
        if (!compiled_call->lines) compiled_call->lines = PyList_New(0);
        return nb::borrow(compiled_call->lines);
      },
      "What the compiled function that runs now has printed: a list to add to; None outside.");
  m.def(
      "compiled_segments", [] { return compiled_call ? compiled_call->capture.segments : int64_t{-1}; },
      "How many programs the compiled function that runs now has ended; -1 outside.");
  m.def(
      "module_ranges",
      [] {
        nb::list found;
        if (!compiled_call) return found;
        for (const CompiledCall::ModuleRange& range : compiled_call->modules)
          if (range.module)
            found.append(nb::make_tuple(range.first, range.behind, nb::borrow(range.module)));  // -> ModuleRange
        return found;
      },
      "Modules that the compiled function that runs now has called: [(first operator, the one behind the last, "
      "module)], "
      "as they were called; -1 instead of the second where one still runs.");
  m.def(
      "open_module", [](nb::handle module) { return open_module(module.ptr()); }, nb::arg("module"),
      "A module begins; a number for close_module.");
  m.def("close_module", &close_module, nb::arg("number"), nb::arg("failed") = false);
}

}  // namespace tandem
