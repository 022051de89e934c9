#include "device/cuda/own_kernels.h"

#include <Python.h>

#include "callbacks.h"

namespace tandem::cuda {

Function load_own_kernel(int device, int number) {
  PyObject* loaded = PyObject_CallFunction(callbacks.load_kernels, "ii", number, device);
  if (!loaded) throw PythonError{};
  auto* found = reinterpret_cast<Function>(PyLong_AsVoidPtr(loaded));
  Py_DECREF(loaded);
  if (!found) throw PythonError{};
  return found;
}

}  // namespace tandem::cuda
