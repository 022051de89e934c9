// Streams for copies that overlap with kernels.
#pragma once
#include "device/cuda/device.h"

namespace tandem::cuda {

enum class Direction : uint8_t { ToDevice, ToHost };

// One for each direction and device, as each has an engine of its own; made when first asked for, and never destroyed.
Stream copy_stream(int device, Direction direction);

// While inside, work of this thread goes to another stream, and memory is that stream's.
class StreamScope {
 public:
  StreamScope(int device, Stream stream) : device_(device), before_(current_streams[device]) {
    current_streams[device] = stream;
  }
  ~StreamScope() { current_streams[device_] = before_; }
  StreamScope(const StreamScope&) = delete;

 private:
  int device_;
  Stream before_;
};

}  // namespace tandem::cuda
