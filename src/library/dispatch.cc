#include "library/kernels/kernels.h"

#include "switches.h"

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

struct Tables {  // the best of this processor that a switch allows
  const Kernels* best[3];

  Tables() {
    for (const Kernels*& table : best) table = &baseline::table;
#ifdef TANDEM_X86
    __builtin_cpu_init();
    const bool has_avx2 =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (has_avx2) best[switches::kBestIsa] = best[switches::kAvx2] = &avx2::table;
    if (has_avx512) best[switches::kBestIsa] = &avx512::table;
#endif
  }
};

}  // namespace

const Kernels& kernels() {
  static const Tables tables;
  return *tables.best[switches::get(switches::isa)];
}

}  // namespace tandem::library
