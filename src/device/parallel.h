// The CPU thread pool: one for the process, sized from affinity and cgroup quota, waiting without spinning the machine away.
#pragma once
#include <cstdint>
#include <type_traits>

namespace tandem {

int num_threads();
void set_num_threads(int n);
bool in_parallel();  // whether the calling thread is running a piece of a parallel call

// Calls body(begin, end, data) over disjoint pieces of [0, extent). `cost` estimates the work of one item in nanoseconds;
// small totals run inline in the calling thread. Pieces are balanced dynamically; an exception in a piece is rethrown here.
// Nested calls run inline.
using RangeBody = void (*)(int64_t begin, int64_t end, void* data);
void parallel_range(int64_t extent, double cost, RangeBody body, void* data);

// Calls body(index, size, data) once for each index in [0, size), each in a thread of its own, all at the same time, so that
// the body may use barriers. Waits for its turn if another thread uses the pool. A nested call gets a team of one: body(0, 1).
using TeamBody = void (*)(int index, int size, void* data);
void parallel_team(int size, TeamBody body, void* data);

template <typename F>
void parallel_for(int64_t extent, double cost, F&& body) {  // body(begin, end)
  parallel_range(extent, cost,
                 [](int64_t begin, int64_t end, void* data) { (*static_cast<std::remove_reference_t<F>*>(data))(begin, end); },
                 const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace tandem
