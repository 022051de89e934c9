// NVIDIA's libraries, opened at run time from wheels or the system (tandem/codegen/cuda/libraries.py knows where they
// may be).
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "device/cuda/driver.h"
#include "tensor/dtype.h"

namespace tandem::cuda {

// Handle of the library `name`, such as "cublasLt". Throws Error(Device) saying what is missing. Needs the GIL.
void* open_library(const char* name);
void* symbol(void* library, const char* library_name, const char* name);

// Fills tables of a library's functions: load(api.create, "cudnnCreate"). Throws as open_library does.
class LoadFrom {
 public:
  explicit LoadFrom(const char* name) : name_(name), library_(open_library(name)) {}
  LoadFrom(const char* name, void* library) : name_(name), library_(library) {}
  template <typename F>
  void operator()(F*& function, const char* name) const {
    function = reinterpret_cast<F*>(symbol(library_, name_, name));
  }

 private:
  const char* name_;
  void* library_;
};

// Begins to open cuBLASLt, from the first of `paths` that is there, beside whatever comes next, for products of
// `dtype`. Whatever fails is left to the first product. Once per process. Needs the GIL.
void open_products_ahead(int device, DType dtype, std::vector<std::string> paths);

// Device memory for the duration of a call: given back at once, to be used by what is queued behind it.
class Workspace {
 public:
  Workspace(int device, size_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  char* data() const { return data_; }

 private:
  struct Block* block_ = nullptr;
  char* data_ = nullptr;
};

extern bool
    allow_tf32;  // whether float32 products may be computed with TensorFloat-32, which keeps 10 bits of fraction

}  // namespace tandem::cuda
