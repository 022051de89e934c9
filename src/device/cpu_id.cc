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
std::string describe() {
  struct Leaf {
    unsigned a = 0, b = 0, c = 0, d = 0;
    Leaf(unsigned leaf, unsigned sub) { __get_cpuid_count(leaf, sub, &a, &b, &c, &d); }
  };
  Leaf vendor(0, 0), basic(1, 0), more(7, 0), most(7, 1), avx10(0x24, 0), extended(0x80000001, 0);
  unsigned model = basic.a & ~15u;  // without the stepping
  uint64_t enabled = 0;             // register files that the system saves; AVX-512 is of no use without
  if (basic.c & bit_OSXSAVE) {
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    enabled = low | uint64_t{high} << 32;
  }
  return hex({vendor.b, model, basic.c, basic.d, more.b, more.c, more.d, most.a, most.d, avx10.b, extended.c,
              extended.d, enabled});
}
#elif defined(__aarch64__) && defined(__linux__)
std::string describe() {
  std::string model;
  std::ifstream("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1") >> model;
  return "-" + model + hex({getauxval(AT_HWCAP), getauxval(AT_HWCAP2)});
}
#else
std::string describe() {
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

}  // namespace tandem
