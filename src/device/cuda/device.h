// CUDA devices as the runtime sees them: contexts, current streams, copies, waiting.
#pragma once
#include <cstdint>
#include <string>

#include "device/cuda/driver.h"

namespace tandem::cuda {

inline constexpr int kMaxDevices = 15;  // a signature has four bits for the device, of which 0 is the CPU

struct Properties {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  size_t memory = 0;
};

int device_count();  // 0 where CUDA is not available
const Properties& properties(int device);

// Makes `device` current in this thread, with a context made when first needed. Throws if there is no such device.
void activate_slow(int device);
extern constinit thread_local int active_device;  // -1: none yet
inline void activate(int device) {
  if (active_device != device) [[unlikely]]
    activate_slow(device);
}

// The stream that work of this thread goes to.
extern constinit thread_local Stream current_streams[kMaxDevices];
inline Stream current_stream(int device) {
  return current_streams[device];
}

// What goes to the current stream from now on comes after what was queued on `earlier` so far.
void follow_stream(int device, Stream earlier);

// Called after the host has waited for a device: may throw what others found out meanwhile (collectives).
extern void (*after_wait)();

// Waits, with the GIL released if it is held, and reports errors of kernels (bad indices, faults).
void synchronize_stream(int device, Stream stream);
void synchronize_device(int device);

// Copies of dense memory, ordered on the current stream of the device. To and from pageable host memory the copy is
// done when the call returns; `wait` says whether to wait for pinned memory as well.
void copy_to_device(int device, char* to, const char* from, size_t bytes, bool wait);
void copy_to_host(int device, char* to, const char* from, size_t bytes, bool wait);
void copy_on_device(int device, char* to, const char* from, size_t bytes);
void copy_between(int to_device, char* to, int from_device, const char* from, size_t bytes);

}  // namespace tandem::cuda
