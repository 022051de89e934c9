// Clocks of measurements: time that a thread waits is not its own.
// links: src/fork_guard.cc
#include "library/measure.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

using namespace tandem::library;

int main() {
  const double wall = seconds_of(Clock::kWall), own = seconds_of(Clock::kThread);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const double waited = seconds_of(Clock::kWall) - wall, worked = seconds_of(Clock::kThread) - own;
  if (waited < 0.19 || worked < 0 || worked > waited / 2) {
    std::fprintf(stderr, "waited %g, worked %g\n", waited, worked);
    return 1;
  }
  return 0;
}
