// Clocks of measurements that choose between ways.
//
// Note [Measured beside other work]
// On a machine that others use, the clock counts their turns too: the least of a few times varies by more than ways
// differ, and a choice made then stays. So where the times of the clock are not to be trusted, ways are measured once
// more by the calling thread alone, in time of the processor. What others do to caches still shows; how well a way is
// shared between threads does not, but most of what tells ways apart does.
#pragma once
#include <ctime>

namespace tandem::library {

enum class Clock { kWall, kThread };  // kThread: processor time of the calling thread

inline double seconds_of(Clock clock) {
  timespec now;
  ::clock_gettime(clock == Clock::kWall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace tandem::library
