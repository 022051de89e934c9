// RunLock: many that read a session's variables at once, or one that writes them.
#pragma once
#include <condition_variable>
#include <mutex>

#include "fork_guard.h"

namespace tandem {

class RunLock {
 public:
  void lock_shared() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !writing_ && waiting_ == 0; });
    ++readers_;
  }
  void unlock_shared() {
    std::lock_guard lock(mutex_);
    if (--readers_ == 0) changed_.notify_all();
  }
  void lock() {
    std::unique_lock lock(mutex_);
    ++waiting_;  // writers go before new readers, or steady reading would keep them out for ever
    changed_.wait(lock, [this] { return !writing_ && readers_ == 0; });
    --waiting_;
    writing_ = true;
  }
  void unlock() {
    std::lock_guard lock(mutex_);
    writing_ = false;
    changed_.notify_all();
  }
  bool try_lock() {
    std::lock_guard lock(mutex_);
    if (writing_ || readers_) return false;
    return writing_ = true;
  }
  bool try_lock_shared() {
    std::lock_guard lock(mutex_);
    if (writing_ || waiting_) return false;
    ++readers_;
    return true;
  }

 private:
  // In a child of fork those who had it, or waited, do not exist.
  void renew_in_child() {
    renew(changed_);
    readers_ = waiting_ = 0;
    writing_ = false;
  }

  std::mutex mutex_;  // guards all below
  ForkGuard fork_{mutex_, [this] { renew_in_child(); }};
  std::condition_variable changed_;
  int readers_ = 0, waiting_ = 0;
  bool writing_ = false;
};

}  // namespace tandem
