// Launches of eager kernels by another thread, several at a time where they repeat.
//
// Note [Launches by another thread]
// A launch takes the driver 2.5 to 4 µs of the host's time, five times as long as everything else about a small
// operator. So a program that launches one kernel after the other hands them to a thread of ours, in a ring, and goes
// on. Kernels that have been waiting there in the same order before are put into a graph, whose nodes get the new
// arguments: 16 of them take it 5 µs.
//
// The order in which the device gets work stays as it was: everything else that is asked of the driver, by whichever
// thread, waits until the ring is empty (driver() sees to it), and so does a library's call. What a launch has to say
// about errors is raised by a later launch, or where the host waits; recent_launches() names the culprit as ever.
//
// The thread spins while there is work, and sleeps soon after, or when a library is called: the host would wait for it
// more often than it gains. While it sleeps, launches are made where they are asked for; only a row of them, with no
// library's call between, wakes it. It needs a processor for itself, so there is none where a process may use less than
// four. Once somebody else may look at our memory or put work on our streams
// (dlpack, a stream's handle), it is not used any more: they rely on the driver's order alone.
// TANDEM_LAUNCHER=0: no such thread; 1: one also on small machines.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "device/cuda/driver.h"

namespace tandem::cuda {

struct KernelLaunch {
  Function function;
  unsigned blocks, threads[2], shared_bytes;
  Stream stream;
  int device;
};

// Hands a kernel with `count` words of arguments over; false: it has to be launched here.
bool hand_over(const KernelLaunch& kernel, const uint64_t* words, size_t count);

// How many launches were handed over, and how many of those the device has got. Only where they differ is there
// anything to wait for.
extern std::atomic<uint64_t> handed_over, passed_on;
void settle_slow();
inline void settle() {
  if (passed_on.load(std::memory_order_acquire) != handed_over.load(std::memory_order_relaxed)) [[unlikely]]
    settle_slow();
}

void library_follows();   // settles; and there is no row of launches now
Status launch_failure();  // of a launch that was handed over; 0 if there was none since the last call
void share_streams();     // others use our streams or memory from now on

}  // namespace tandem::cuda
