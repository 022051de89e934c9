// The CPU thread pool: one for the process, sized from affinity and cgroup quota, waiting without spinning the machine
// away.
#pragma once
#include <cstdint>
#include <type_traits>

namespace tandem {

int num_threads();
void set_num_threads(int n);  // 0: as many as the process may use
bool in_parallel();           // whether the calling thread is running a piece of a parallel call

// While one lives, parallel calls of this thread run inline: for work too small to be shared.
class Alone {
 public:
  Alone();
  ~Alone();
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  bool before_;
};

// Calls body(begin, end, data) over disjoint pieces of [0, extent). `cost` estimates the work of one item in
// nanoseconds; small totals run inline in the calling thread. Pieces are balanced dynamically; an exception in a piece
// is rethrown here. Nested calls run inline.
using RangeBody = void (*)(int64_t begin, int64_t end, void* data);
void parallel_range(int64_t extent, double cost, RangeBody body, void* data);

// A team of `size` threads that run at the same time, so that the body may use barriers. begin_team waits for its turn
// if another thread uses the pool, calls prepare(data), starts body(1, size, data) ... body(size - 1, size, data) in
// workers and returns; the caller then does the part of member 0 itself and calls end_team, which waits for the others.
// Returns the size of the team: 1 inside another parallel call, where nothing is prepared or started.
using TeamBody = void (*)(int index, int size, void* data);
int begin_team(int size, void (*prepare)(void*), TeamBody body, void* data);
void end_team(int size);

template <typename F>
void parallel_for(int64_t extent, double cost, F&& body) {  // body(begin, end)
  parallel_range(
      extent, cost,
      [](int64_t begin, int64_t end, void* data) { (*static_cast<std::remove_reference_t<F>*>(data))(begin, end); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace tandem
