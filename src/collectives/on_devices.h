// A rank's part in a group for tensors on devices, however ranks reach one another in host memory; see
// Note [Collectives on devices].
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/call.h"
#include "collectives/communicator.h"
#include "collectives/device_lane.h"

namespace tandem::collectives {

class OnDevices : public Communicator {
 public:
  bool queue(const Request& request, int device, cuda::Stream stream) final;
  void raise_device_failure() final;
  void require_nccl() { requires_nccl_ = true; }

 protected:
  // What the group does in host memory.
  virtual std::vector<int64_t> meet_alike(const Request& request, int64_t word) = 0;  // without a lock of its own
  virtual void run_alike(const Request& request) = 0;                                 // likewise
  virtual void meet_again() {}                            // ranks that are threads, when all have queued theirs
  virtual void look(const Call& call) = 0;                // throws where others have failed, or the user interrupts
  virtual bool has_failed() = 0;                          // whether another rank has
  virtual void tell_failure(const Call& call) const = 0;  // throws
  virtual Call latest_call() const = 0;
  virtual std::string name(int rank) const = 0;
  virtual bool is_left() const = 0;
  virtual bool on_one_host() const = 0;
  virtual bool sends_by_device() const = 0;  // whether messages of tensors on devices may go by NCCL
  virtual void device_opened() {}

  void watch_devices();  // now and then, or when another rank has failed
  void close_devices(bool failed) noexcept;
  bool has_devices() const { return device_opened_; }

  std::mutex mutex_;  // one collective at a time; sends and receives have ways of their own

 private:
  void open_device(const Request& request, int device);
  bool queue_message(const Request& request, int device, cuda::Stream stream);
  std::shared_ptr<DeviceLane> open_pair(const Request& request, int device);  // null if NCCL refuses
  std::shared_ptr<DeviceLane> open_lane(int device, int rank, int size, const nccl::UniqueId& id, const Call& call);

  bool requires_nccl_ = false;
  std::atomic<bool> device_opened_ = false;                            // whether it was tried
  std::shared_ptr<DeviceLane> device_;                                 // of collectives; null where NCCL cannot be used
  std::mutex lanes_mutex_;                                             // guards what follows
  std::vector<std::shared_ptr<DeviceLane>> lanes_;                     // all, to be given up together
  std::map<std::pair<bool, int>, std::shared_ptr<DeviceLane>> pairs_;  // of messages: (whether sent, the
                                                                       // other rank); null: NCCL refuses
  std::atomic<bool> gave_up_ = false, told_ = false;
};

}  // namespace tandem::collectives
