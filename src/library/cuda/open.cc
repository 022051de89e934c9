#include "library/cuda/open.h"

#include <dlfcn.h>

#include <string>

#include "check.h"
#include "device/cuda/memory.h"
#include "interpreter.h"

namespace tandem::cuda {

bool allow_tf32 = false;

void* open_library(const char* name) {
  std::string problem;
  for (const std::string& path : interpreter.library_paths(name)) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    if (problem.empty()) problem = dlerror();
  }
  fail(ErrorKind::Device, "lib", name, " cannot be opened: ", problem,
       "\n  fix: pip install tandem[cuda], or install CUDA");
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
