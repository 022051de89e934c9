// The thread pool: every item once, errors come back, teams run together, forks and concurrent callers are safe.
// links: src/device/parallel.cc src/device/cpu_limits.cc
#include "device/parallel.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace tandem;

#define EXPECT(condition)                                                  \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (0)

static void every_item_once(int64_t extent, double cost) {
  std::vector<std::atomic<int>> hits(extent);
  parallel_for(extent, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) hits[i]++;
  });
  for (auto& hit : hits) EXPECT(hit == 1);
}

static void team_meets_at_a_barrier(int size) {
  struct Shared {
    std::atomic<int> arrived{0}, left{0};
  } shared;
  const auto meet = [](int, int n, void* data) {
    auto& s = *static_cast<Shared*>(data);
    s.arrived++;
    while (s.arrived < n) std::this_thread::yield();
    s.left++;
  };
  const int got = begin_team(size, nullptr, meet, &shared);
  EXPECT(got == size);
  EXPECT(begin_team(2, nullptr, meet, &shared) == 1);
  meet(0, got, &shared);
  end_team(got);
  EXPECT(shared.left == size);
}

int main() {
  set_num_threads(4);
  for (int i = 0; i < 300; ++i) {
    every_item_once(1 + i * 37 % 5000, 1000);
    if (i % 3 == 0) team_meets_at_a_barrier(2 + i % 4);
  }

  bool caught = false;
  try {
    parallel_for(100, 1e6, [](int64_t begin, int64_t) {
      if (begin >= 50) throw std::runtime_error("piece");
    });
  } catch (const std::runtime_error&) {
    caught = true;
  }
  EXPECT(caught);

  parallel_for(8, 1e6, [](int64_t, int64_t) {
    EXPECT(in_parallel());
    every_item_once(100, 1e6);
  });
  EXPECT(!in_parallel());

  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([t] {
      for (int i = 0; i < 100; ++i) {
        every_item_once(500, 1e4);
        if (t % 2) team_meets_at_a_barrier(3);
      }
    });
  for (auto& caller : callers) caller.join();

  const pid_t child = fork();
  if (child == 0) {
    every_item_once(1000, 1e4);
    _exit(0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT(status == 0);

  set_num_threads(2);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 2000; ++i) parallel_for(2, 20000, [](int64_t, int64_t) {});
  std::printf("ok; an empty job takes %.2f us\n",
              std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / 2000);
}
