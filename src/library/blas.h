// Which library serves matrix products and convolutions, and where the package keeps it.
#pragma once
#include <string>

namespace tandem::library {

const char* blas_backend();  // "onednn", "openblas" or "loops"; loads the library

// Opens a library from the folder `lib` beside the extension. Returns nullptr if that fails, and says why: in `reason`,
// or on stderr.
void* open_bundled(const char* file_name, std::string* reason = nullptr);

// scipy-openblas, where the build chose it.
struct OpenBlas {
  void (*sgemm)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
  void (*dgemm)(int, int, int, int, int, int, double, const double*, int, const double*, int, double, double*, int);
  void (*set_num_threads)(int);
};
const OpenBlas* openblas();  // nullptr where it is not to be had

}  // namespace tandem::library
