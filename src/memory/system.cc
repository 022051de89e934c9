#include "memory/system.h"

#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>

#include "memory/format.h"

namespace tandem {

void* system_map(size_t bytes, size_t alignment) {
  size_t padded = bytes + alignment;  // so that an aligned range is in it; the rest is returned at once
  void* raw = mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto start = reinterpret_cast<uintptr_t>(raw);
  auto aligned = (start + alignment - 1) / alignment * alignment;
  if (aligned > start) munmap(raw, aligned - start);
  if (size_t tail = start + padded - (aligned + bytes)) munmap(reinterpret_cast<void*>(aligned + bytes), tail);
  return reinterpret_cast<void*>(aligned);
}

void system_unmap(void* address, size_t bytes) noexcept {
  munmap(address, bytes);
}

size_t machine_memory() {
  static const size_t total = [] {
    struct sysinfo info{};
    sysinfo(&info);
    size_t bytes = (static_cast<size_t>(info.totalram) + info.totalswap) * info.mem_unit;
    // cgroup v2, then v1; "max" (no limit) does not parse as a number and is passed over.
    for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
      std::ifstream file(path);
      if (size_t value; file >> value) bytes = std::min(bytes, value);
    }
    return bytes;
  }();
  return total;
}

std::string format_bytes(size_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  static constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  for (; value >= 1024 && unit < 5; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %s", value, units[unit]);
  return text;
}

}  // namespace tandem
