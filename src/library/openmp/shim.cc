// The few OpenMP entry points that oneDNN calls, served by Tandem's own thread pool.
//
// Note [One thread pool]
// The oneDNN wheel was built against libgomp. libgomp keeps threads of its own, spins for milliseconds while it waits,
// hangs in forked children, and may be replaced under our feet by another package's copy. So our copy of oneDNN is
// linked to this library instead (cmake/bundle_onednn.py renames the needed library and the symbols), and there is one
// pool in the process.
#include <atomic>
#include <cstdint>

#include "library/openmp/shim.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

tandem_openmp_pool pool;

// Meeting point of the current team. One team runs at a time: begin_team holds the pool until end_team.
struct Barrier {
  std::atomic<int> waiting{0};
  std::atomic<uint32_t> round{0};

  void arrive(int size) {
    const uint32_t now = round.load();
    if (waiting.fetch_add(1) + 1 == size) {
      waiting.store(0);
      round.store(now + 1);
      round.notify_all();
    } else {
      round.wait(now);  // spins for a moment, then sleeps
    }
  }
} barrier;

struct Member {
  int index = 0, size = 1;
  int outer_regions_of_one = 0;                 // nested parallel regions get a team of one
  long next = 0, end = 0, step = 1, chunk = 0;  // the static loop under way: the next chunk, counted in iterations
  long first = 0;
};
thread_local Member member;

struct Region {
  void (*function)(void*);
  void* data;
};

void run_member(int index, int size, void* data) {
  member = Member{index, size};
  const Region region = *static_cast<Region*>(data);
  region.function(region.data);
  member = Member{};
}

bool next_chunk(long* begin, long* end) {
  if (member.next >= member.end) return false;
  const long stop = member.next + member.chunk < member.end ? member.next + member.chunk : member.end;
  *begin = member.first + member.next * member.step;
  *end = member.first + stop * member.step;
  member.next += member.chunk * member.size;
  return true;
}

}  // namespace

EXPORT void tandem_openmp_connect(const tandem_openmp_pool* table) {
  pool = *table;
}

EXPORT void TDMP_parallel_start(void (*function)(void*), void* data, unsigned requested) {
  const int wanted = requested ? static_cast<int>(requested) : pool.max_threads();
  if (member.size > 1 || pool.in_parallel() || wanted <= 1) {
    ++member.outer_regions_of_one;
    return;
  }
  static thread_local Region region;  // read by the members until TDMP_parallel_end
  region = {function, data};
  member.size = pool.begin_team(wanted, [](void*) { barrier.waiting.store(0); }, run_member, &region);
  member.index = 0;
}

EXPORT void TDMP_parallel_end() {
  if (member.outer_regions_of_one > 0) {
    --member.outer_regions_of_one;
    return;
  }
  const int size = member.size;
  member = Member{};
  pool.end_team(size);
}

EXPORT void TDMP_parallel(void (*function)(void*), void* data, unsigned requested, unsigned) {
  TDMP_parallel_start(function, data, requested);
  function(data);
  TDMP_parallel_end();
}

EXPORT void TDMP_barrier() {
  if (member.outer_regions_of_one == 0 && member.size > 1) barrier.arrive(member.size);
}

EXPORT bool TDMP_loop_static_next(long* begin, long* end) {
  return next_chunk(begin, end);
}

EXPORT bool TDMP_loop_static_start(long start, long end, long step, long chunk, long* begin, long* stop) {
  const long total = step > 0 ? (end - start + step - 1) / step : (end - start + step + 1) / step;
  const int size = member.outer_regions_of_one ? 1 : member.size,
            index = member.outer_regions_of_one ? 0 : member.index;
  member.first = start, member.step = step;
  if (chunk <= 0) {  // one contiguous share each
    const long share = total / size, extra = total % size;
    member.next = index * share + (index < extra ? index : extra);
    member.end = member.next + share + (index < extra);
    member.chunk = total > 0 ? total : 1;
  } else {
    member.next = index * chunk, member.end = total, member.chunk = chunk;
  }
  return next_chunk(begin, stop);
}

EXPORT void TDMP_loop_end_nowait() {}

EXPORT int tdp_get_max_threads() {
  return pool.max_threads();
}
EXPORT int tdp_get_num_threads() {
  return member.outer_regions_of_one ? 1 : member.size;
}
EXPORT int tdp_get_thread_num() {
  return member.outer_regions_of_one ? 0 : member.index;
}
EXPORT int tdp_in_parallel() {
  return member.size > 1 || pool.in_parallel();
}
