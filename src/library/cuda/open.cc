#include "library/cuda/open.h"

#include <Python.h>
#include <dlfcn.h>

#include <string>

#include "callbacks.h"
#include "check.h"
#include "device/cuda/memory.h"

namespace tandem::cuda {

bool allow_tf32 = false;

void* open_library(const char* name) {
  PyObject* paths = PyObject_CallFunction(callbacks.load_kernels, "si", name, -1);
  if (!paths) throw PythonError{};
  void* library = nullptr;
  std::string problem;
  for (Py_ssize_t i = 0; i < PySequence_Size(paths) && !library; ++i) {
    PyObject* path = PySequence_GetItem(paths, i);
    if (const char* text = path ? PyUnicode_AsUTF8(path) : nullptr) {
      library = dlopen(text, RTLD_NOW | RTLD_LOCAL);
      if (!library && problem.empty()) problem = dlerror();
    }
    Py_XDECREF(path);
  }
  Py_DECREF(paths);
  PyErr_Clear();
  if (!library)
    fail(ErrorKind::Device, "lib", name, " cannot be opened: ", problem,
         "\n  fix: pip install tandem[cuda], or install CUDA");
  return library;
}

void* symbol(void* library, const char* library_name, const char* name) {
  void* found = dlsym(library, name);
  if (!found)
    fail(ErrorKind::Device, "lib", library_name, " has no ", name,
         ": it is too old or too new for this version of Tandem");
  return found;
}

Workspace::Workspace(int device, size_t bytes) {
  if (bytes == 0) return;
  block_ = allocate(device, bytes);
  data_ = address_of(block_);
}

Workspace::~Workspace() {
  if (block_) deallocate(block_);
}

}  // namespace tandem::cuda
