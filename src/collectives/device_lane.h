// Tensors on CUDA devices between ranks: NCCL on a stream of its own.
//
// Note [Collectives on devices]
// Ranks first meet in host memory, as for all collectives: so different calls, a rank that died and one that does not
// come are found as ever, and nothing is given to NCCL that could not complete. Then the collective is queued on the
// lane's stream, behind what the current stream has, and is side work (device/cuda/side_work.h). While it runs, the
// rank's watcher looks at the others; when one has failed, it has NCCL give up, so that nobody waits for the device for
// ever, and the next wait for the device tells. Ranks that are threads of one process meet again when all have queued
// theirs: allocating device memory may wait for kernels that wait for another rank.
#pragma once
#include <atomic>
#include <functional>
#include <memory>

#include "collectives/communicator.h"
#include "collectives/nccl.h"

namespace tandem::collectives {

// Whether NCCL does this; if not, the ranks do it in host memory.
bool has_device_routine(const Request& request);

class DeviceLane {
 public:
  // `look` is called while others are waited for, and may throw.
  static std::shared_ptr<DeviceLane> open(int device, int rank, int size, const nccl::UniqueId& id,
                                          const std::function<void()>& look);
  ~DeviceLane();
  DeviceLane(const DeviceLane&) = delete;

  void queue(const Request& request, cuda::Stream after);
  bool is_idle() const;
  void give_up() noexcept;  // what is under way ends; no further calls

 private:
  DeviceLane(int device, int rank, int size, nccl::Comm comm);
  void call(const Request& request);
  void exchange(const Request& request);

  const int device_, rank_, size_;
  nccl::Comm comm_;
  cuda::Stream stream_ = nullptr;
  cuda::Event begin_ = nullptr;
  char* token_ = nullptr;  // a word on the device, for barriers
  std::atomic<bool> gave_up_ = false;
};

}  // namespace tandem::collectives
