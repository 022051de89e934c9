// Switches (tandem/switches.py) that the runtime looks at while it works. Python sets them, at import and in scopes;
// nothing here reads the environment.
#pragma once
#include <atomic>

namespace tandem::switches {

enum Isa { kBestIsa, kBaseline, kAvx2 };

inline std::atomic<int> ahead{1};  // devices begin with a recorded program while its calls are still being captured
inline std::atomic<int> early{1};  // eager kernels are set up on devices while earlier ones run
inline std::atomic<int> isa{kBestIsa};  // library routines use no better instructions than these
inline std::atomic<int> launcher{
    -1};  // rows of eager kernels are launched by a thread: 0 never, 1 always, -1 where it pays
inline std::atomic<int> order{2};     // equal collectives in different orders: 0 nothing, 1 a warning, 2 an error
inline std::atomic<int> tune{0};      // matrix products on devices by the fastest of several algorithms
inline std::atomic<int> winograd{1};  // convolutions of 3 x 3 by Winograd's method

inline int get(const std::atomic<int>& value) {
  return value.load(std::memory_order_relaxed);
}

}  // namespace tandem::switches
