#include "memory/allocator.h"

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace tandem {

void register_memory(nb::module_& m) {
  m.def("memory_stats", [] {
    MemoryStats stats = memory_stats();
    nb::dict d;
    d["live_bytes"] = stats.live_bytes;
    d["reserved_bytes"] = stats.reserved_bytes;
    d["peak_bytes"] = stats.peak_bytes;
    d["live_blocks"] = stats.live_blocks;
    d["allocations"] = stats.allocations;
    d["system_allocations"] = stats.system_allocations;
    d["system_frees"] = stats.system_frees;
    return d;
  });
  m.def("reset_peak_memory", &reset_peak_memory);
  m.def("empty_cache", &empty_cache, nb::call_guard<nb::gil_scoped_release>());
  m.def("set_memory_limit", &set_memory_limit, nb::arg("bytes"));
}

}  // namespace tandem
