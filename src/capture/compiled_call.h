// One call of a compiled function.
#pragma once
#include <Python.h>

#include <cstdint>
#include <vector>

namespace tandem {

class Capture;

struct CompiledCall {
  // A module that the function called, or calls: the operators [first, behind) were called in it. While it runs, behind
  // is -1; where it failed there is no module.
  struct ModuleRange {
    int64_t first, behind;
    PyObject* module;  // owned
  };
  explicit CompiledCall(Capture& capture);
  CompiledCall(const CompiledCall&) = delete;
  ~CompiledCall();

  Capture& capture;
  std::vector<ModuleRange> modules;  // as they were called
  PyObject* lines = nullptr;         // what td.print was given: a list (owned), or null
  CompiledCall* outer;
};

extern constinit thread_local CompiledCall* compiled_call;  // the innermost one of this thread, or null

// A module begins; its number for close_module, or -1 where no operators are captured.
int64_t open_module(PyObject* module);
void close_module(int64_t number, bool failed);

}  // namespace tandem
