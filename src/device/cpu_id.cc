#include "device/cpu_id.h"

#include <sys/utsname.h>

#include <cstdint>
#include <cstdio>
#include <initializer_list>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

#include <fstream>
#endif

namespace tandem {
namespace {

std::string hex(std::initializer_list<uint64_t> words) {
  std::string text;
  char buffer[20];
  for (uint64_t word : words) {
    std::snprintf(buffer, sizeof buffer, "-%llx", static_cast<unsigned long long>(word));
    text += buffer;
  }
  return text;
}

#if defined(__x86_64__)
struct Leaf {
  unsigned a = 0, b = 0, c = 0, d = 0;
  Leaf(unsigned leaf, unsigned sub) { __get_cpuid_count(leaf, sub, &a, &b, &c, &d); }
};

// Register files that the system saves; AVX and AVX-512 are of no use without.
uint64_t saved_registers() {
  if (!(Leaf(1, 0).c & bit_OSXSAVE)) return 0;
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low | uint64_t{high} << 32;
}

std::string describe() {
  Leaf vendor(0, 0), basic(1, 0), more(7, 0), most(7, 1), avx10(0x24, 0), extended(0x80000001, 0);
  unsigned model = basic.a & ~15u;  // without the stepping
  return hex({vendor.b, model, basic.c, basic.d, more.b, more.c, more.d, most.a, most.d, avx10.b, extended.c,
              extended.d, saved_registers()});
}

std::string level() {
  Leaf basic(1, 0), more(7, 0), extended(0x80000001, 0);
  auto has = [](unsigned word, unsigned bits) { return (word & bits) == bits; };
  constexpr unsigned lahf = 1, lzcnt = 1 << 5;  // of the extended leaf; compilers name them differently
  uint64_t saved = saved_registers();
  bool avx_saved = (saved & 0x6) == 0x6, avx512_saved = (saved & 0xE6) == 0xE6;
  bool v2 = has(basic.c, bit_SSE3 | bit_SSSE3 | bit_CMPXCHG16B | bit_SSE4_1 | bit_SSE4_2 | bit_POPCNT) &&
            has(extended.c, lahf);
  bool v3 = v2 && avx_saved && has(basic.c, bit_FMA | bit_MOVBE | bit_AVX | bit_F16C) &&
            has(more.b, bit_BMI | bit_AVX2 | bit_BMI2) && has(extended.c, lzcnt);
  bool wide = avx512_saved && has(more.b, bit_AVX512BW);
  bool v4 = v3 && wide && has(more.b, bit_AVX512F | bit_AVX512DQ | bit_AVX512CD | bit_AVX512VL);
  if (v4) return "x86-64-v4";
  if (v3) return wide ? "" : "x86-64-v3";
  return v2 && !(avx_saved && (has(more.b, bit_AVX2) || has(basic.c, bit_FMA))) ? "x86-64-v2" : "";
}
#elif defined(__aarch64__) && defined(__linux__)
std::string describe() {
  std::string model;
  std::ifstream("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1") >> model;
  return "-" + model + hex({getauxval(AT_HWCAP), getauxval(AT_HWCAP2)});
}

std::string level() {
  return "aarch64";
}
#else
std::string describe() {
  return "";
}

std::string level() {
  return "";
}
#endif

}  // namespace

std::string cpu_id() {
  static const std::string id = [] {
    utsname system{};
    uname(&system);
    return std::string(system.machine) + describe();
  }();
  return id;
}

std::string cpu_level() {
  return level();
}

}  // namespace tandem
