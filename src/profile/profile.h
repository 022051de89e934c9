// What ran when, for td.profile: operators, kernels, library calls, copies, waits. While nothing is being recorded, a
// step costs one test of a flag.
//
// Note [Times on devices]
// A launch is put between two events on its stream; nobody waits for them until the profile ends, so work overlaps as
// it would. What the device idles between the first event and the launch's arrival is counted to the launch: a stream
// that runs dry shows steps of some microseconds. Programs run step by step while a profile is recorded, not as graphs.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "device/cuda/driver.h"

namespace tandem::profile {

enum class Kind : uint8_t { Operator, Kernel, Library, Region, Copy, Compile, Wait, None };

struct Entry {
  Kind kind;
  int device = 0;  // 0: the host, k: cuda:(k - 1)
  std::string label, op, line;
  uint64_t thread = 0, stream = 0;
  int64_t start = 0, duration = 0;  // nanoseconds of the steady clock
  int64_t launched = 0;             // on devices: when the host queued it
  int64_t bytes = 0;                // of copies
  int64_t live = 0;                 // memory of that device that tensors have when it ends, as the host sees it
};

inline std::atomic<bool> active{false};
inline bool recording() {
  return active.load(std::memory_order_relaxed);
}

bool start();  // false if a profile is being recorded already
struct Result {
  std::vector<Entry> entries;
  int64_t dropped = 0;  // beyond the most that are kept
};
Result stop();  // waits for what was launched on devices

// From here to the end of the scope. Which operator and line a step belongs to is told by its origin, or else by the
// innermost Operator around it in this thread.
class Scope {
 public:
  Scope(Kind kind, const std::string& label, const Origin* origin = nullptr, int device = 0,
        cuda::Stream stream = nullptr, int64_t bytes = 0) {
    if (recording()) [[unlikely]]
      begin(kind, label, origin, device, stream, bytes);
  }
  ~Scope() {
    if (entry_) [[unlikely]]
      end();
  }
  Scope(const Scope&) = delete;

 private:
  void begin(Kind kind, const std::string& label, const Origin* origin, int device, cuda::Stream stream, int64_t bytes);
  void end() noexcept;

  std::unique_ptr<Entry> entry_;
  const Entry* outer_ = nullptr;
  cuda::Event events_[2] = {nullptr, nullptr};
};

}  // namespace tandem::profile
