// What a child of fork finds: none of its parent's threads, and mutexes as they were at that moment.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>

namespace tandem {

// Beside a mutex. Before a fork the forking thread takes the mutex, so that what it guards is whole in the child; there
// it is free again, even where somebody held it for too long to wait. `in_child` then puts right what belonged to
// threads that the child does not have.
//
//   std::mutex mutex_;  // guards waiting_
//   ForkGuard fork_{mutex_, [this] { waiting_.clear(); }};
class ForkGuard {
 public:
  enum class Before { Wait, Go };  // Go: holders take long, and what they leave behind is put right by in_child

  explicit ForkGuard(std::mutex& mutex, std::function<void()> in_child = {}, Before before = Before::Wait);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

 private:
  friend struct ForkGuards;
  std::mutex& mutex_;
  std::function<void()> in_child_;
  const Before before_;
  bool held_ = false;  // by the thread that forks
  ForkGuard *previous_ = nullptr, *next_ = nullptr;
};

// While one is alive, forks wait for it (not for ever): for work inside of libraries that have locks of their own.
class NoFork {
 public:
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
};

// In a child: a condition variable that nobody waits for any more. The old one would count those who did.
void renew(std::condition_variable& condition);

}  // namespace tandem
