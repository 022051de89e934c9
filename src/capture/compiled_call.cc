#include "capture/compiled_call.h"

#include <utility>

#include "capture/capture.h"

namespace tandem {

constinit thread_local CompiledCall* compiled_call = nullptr;

CompiledCall::CompiledCall(Capture& capture)
    : capture(capture), modules(std::move(capture.spare_modules)), outer(std::exchange(compiled_call, this)) {}

CompiledCall::~CompiledCall() {
  compiled_call = outer;
  for (ModuleRange& range : modules) Py_XDECREF(range.module);
  modules.clear();
  capture.spare_modules = std::move(modules);
  Py_XDECREF(lines);
}

int64_t open_module(PyObject* module) {
  if (!compiled_call || !active_capture) return -1;
  compiled_call->modules.push_back({active_capture->num_captured(), -1, Py_NewRef(module)});
  return static_cast<int64_t>(compiled_call->modules.size()) - 1;
}

void close_module(int64_t number, bool failed) {
  if (number < 0) return;
  CompiledCall::ModuleRange& range = compiled_call->modules[number];
  range.behind = active_capture ? active_capture->num_captured() : range.first;
  if (failed) Py_CLEAR(range.module);
}

}  // namespace tandem
