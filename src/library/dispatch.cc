#include "library/kernels/kernels.h"

#include <cstdlib>
#include <cstring>

namespace tandem::library {

namespace baseline {
extern const Kernels table;
}
#ifdef TANDEM_X86
namespace avx2 {
extern const Kernels table;
}
namespace avx512 {
extern const Kernels table;
}
#endif

namespace {

const Kernels* choose() {
#ifdef TANDEM_X86
  __builtin_cpu_init();
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  // For tests: a lesser set than the best.
  const char* wanted = std::getenv("TANDEM_ISA");
  if (wanted && !std::strcmp(wanted, "baseline")) return &baseline::table;
  if (has_avx512 && !(wanted && !std::strcmp(wanted, "avx2"))) return &avx512::table;
  if (has_avx2) return &avx2::table;
#endif
  return &baseline::table;
}

}  // namespace

const Kernels& kernels() {
  static const Kernels* const best = choose();
  return *best;
}

}  // namespace tandem::library
