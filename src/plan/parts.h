// Plans over several devices.
//
// Note [Parts]
// A program over several devices is a plan of plans (tandem/codegen/parts.py): an instruction runs the part of one
// device, which is a program of its own, replayed as a CUDA graph where it can be, or copies a value to another device.
// Parts are in an order in which each finds what it reads; no part waits in its middle.
//
// Parts of CUDA devices are queued on the current stream, and copies on streams of their own, one for each direction:
// so a device computes while others copy, and the host computes while devices do both. A device waits for a copy when
// the first part that reads it is queued; the host waits when it needs the value itself, at the latest at the end of
// the run, as the program that follows may read or write any memory that it knows. Memory that copies read or write
// belongs to the stream of the copies, or is told of it (Note [Streams and memory] in device/cuda/memory.h).
#pragma once
#include <cstdint>
#include <vector>

#include "device/cuda/device.h"
#include "ref.h"
#include "tensor/storage.h"
#include "tensor/view.h"

namespace tandem {

// A value on its way: `storage` is null for memory that the run does not hold, as that of inputs.
struct Place {
  int32_t value;  // of the plan
  View view;
  int device;
  Storage* storage;
};

// Copies of one run that may not be done yet.
class Transfers {
 public:
  // Queues a copy between two devices. Both views are dense, in the same order of axes.
  void begin(const Place& from, const Place& to);

  void await(int32_t value);  // work on its device, or on the host, reads a value that may have been copied there
  void await_readers();       // somebody writes inputs, which copies may still read
  void finish();              // before the run ends
  static Ref<Storage> dense_copy(const Place& from);  // elements that do not fill a block, one after the other

 private:
  struct Pending {
    int32_t value;
    int device;    // that the copy is from or to
    bool to_host;  // or to the device
  };
  void await_stream(int device, bool to_host);
  std::vector<Pending> pending_;                   // copies that nobody was told to wait for
  bool from_input_[cuda::kMaxDevices] = {};        // whether copies may still read inputs on the host,
  bool from_input_there_[cuda::kMaxDevices] = {};  // and on the device
};

}  // namespace tandem
