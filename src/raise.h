// C++ exceptions to Python ones (bindings/errors.cc).
#pragma once
#include <Python.h>

#include "check.h"

namespace tandem {

void raise_python(const Error& error);  // sets the Python error: the class of tandem.errors for its kind

struct OpFunction;
void raise_operator_error(OpFunction* op, const Error& error);  // the same, naming the operator that was called

void raise_current_exception() noexcept;  // inside a catch block: sets the Python error for whatever was caught

// Runs the body of a raw CPython slot; an exception becomes a Python error and `failure` is returned.
template <typename Result, typename F>
Result guarded(Result failure, F&& body) noexcept {
  try {
    return body();
  } catch (...) {
    raise_current_exception();
    return failure;
  }
}

}  // namespace tandem
