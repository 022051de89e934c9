#include "device/cuda/copy_streams.h"

#include <mutex>

#include "fork_guard.h"

namespace tandem::cuda {
namespace {

std::mutex mutex;  // guards streams
ForkGuard fork_mutex(mutex);
Stream streams[kMaxDevices][2];

}  // namespace

Stream copy_stream(int device, Direction direction) {
  activate(device);
  std::lock_guard guard(mutex);
  Stream& stream = streams[device][static_cast<int>(direction)];
  constexpr unsigned kNonBlocking = 1;
  if (!stream) check(driver().stream_create(&stream, kNonBlocking, 0), "making a stream");
  return stream;
}

}  // namespace tandem::cuda
