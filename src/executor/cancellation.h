// Cancellation: one flag for everything that a run waits for, and a way to wake the waiting.
#pragma once
#include <functional>
#include <map>
#include <mutex>

namespace tandem::flow {

class Cancellation {
 public:
  // Calls every waker, now and for those that come later at once. A waker must not call back into this object.
  void cancel() {
    std::lock_guard guard(mutex_);
    cancelled_ = true;
    for (auto& [id, wake] : wakers_) wake();
  }
  bool cancelled() const {
    std::lock_guard guard(mutex_);
    return cancelled_;
  }
  int64_t add(std::function<void()> wake) {
    std::lock_guard guard(mutex_);
    if (cancelled_) wake();
    wakers_.emplace(++last_, std::move(wake));
    return last_;
  }
  void remove(int64_t id) {
    std::lock_guard guard(mutex_);
    wakers_.erase(id);
  }

 private:
  mutable std::mutex mutex_;  // guards all below
  bool cancelled_ = false;
  int64_t last_ = 0;
  std::map<int64_t, std::function<void()>> wakers_;
};

struct Cancelled {};  // thrown by what was cancelled

}  // namespace tandem::flow
