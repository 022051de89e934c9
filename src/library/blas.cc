#include "library/blas.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "library/onednn.h"

namespace tandem::library {
namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace

void* open_bundled(const char* file_name, std::string* reason) {
  std::string tried;
  const auto open = [&](const std::string& folder) -> void* {
    const std::string path = folder + "/" + file_name;
    // Lazy: the libraries are large, and we call a small part of them.
    if (void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL)) return handle;
    tried += std::string("\n  ") + dlerror();
    return nullptr;
  };
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&open_bundled), &info) && info.dli_fname) {
    if (void* handle = open(folder_of(info.dli_fname) + "/lib")) return handle;
    const std::unique_ptr<char, decltype(&std::free)> real(realpath(info.dli_fname, nullptr), &std::free);
    if (real && folder_of(real.get()) != folder_of(info.dli_fname))
      if (void* handle = open(folder_of(real.get()) + "/lib")) return handle;
  }
#ifdef TANDEM_BUILD_LIB_DIR
  if (void* handle = open(TANDEM_BUILD_LIB_DIR)) return handle;
#endif
  if (reason) {
    *reason = tried;
    return nullptr;
  }
  std::fprintf(stderr, "tandem: %s, a part of this package, could not be opened; slower code takes its place.%s\n",
               file_name, tried.c_str());
  return nullptr;
}

const OpenBlas* openblas() {
#ifdef TANDEM_OPENBLAS
  static const OpenBlas* const loaded = []() -> const OpenBlas* {
    void* handle = open_bundled("libscipy_openblas.so");
    if (!handle) return nullptr;
    static OpenBlas table;
    const auto load = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      return function != nullptr;
    };
    const bool complete = load(table.sgemm, "scipy_cblas_sgemm") && load(table.dgemm, "scipy_cblas_dgemm") &&
                          load(table.set_num_threads, "scipy_openblas_set_num_threads");
    return complete ? &table : nullptr;
  }();
  return loaded;
#else
  return nullptr;
#endif
}

const char* blas_backend() {
#ifdef TANDEM_ONEDNN
  if (onednn::api()) return "onednn";
#endif
  return openblas() ? "openblas" : "loops";
}

}  // namespace tandem::library
