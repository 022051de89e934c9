#include "fork_guard.h"

#include <pthread.h>

#include <chrono>
#include <new>
#include <thread>
#include <utility>

namespace tandem {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::seconds(5);  // for all of them together: a fork must not hang

bool lock_by(std::mutex& mutex, Clock::time_point deadline) {
  while (!mutex.try_lock()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

}  // namespace

struct ForkGuards {
  std::mutex mutex;  // guards all below, and is held while the process forks
  ForkGuard* first = nullptr;
  int busy = 0;  // NoForks that are alive
  std::condition_variable idle;
  bool held = false;

  static ForkGuards& all() {  // never destroyed: mutexes may outlive static destruction
    static ForkGuards* made = [] {
      auto* guards = new ForkGuards;
      pthread_atfork([] { all().prepare(); }, [] { all().in_parent(); }, [] { all().in_child(); });
      return guards;
    }();
    return *made;
  }

  // Locks are tried until patience ends: a thread that has one may want another one, which is held here already.
  void prepare() {
    const Clock::time_point deadline = Clock::now() + kPatience;
    std::unique_lock lock(mutex);
    idle.wait_until(lock, deadline, [this] { return busy == 0; });
    for (ForkGuard* g = first; g; g = g->next_)
      g->held_ = g->before_ == ForkGuard::Before::Go ? g->mutex_.try_lock() : lock_by(g->mutex_, deadline);
    lock.release();
  }

  void in_parent() {
    for (ForkGuard* g = first; g; g = g->next_)
      if (std::exchange(g->held_, false)) g->mutex_.unlock();
    mutex.unlock();
  }

  void in_child() {
    busy = 0;
    renew(idle);
    for (ForkGuard* g = first; g; g = g->next_) {
      if (std::exchange(g->held_, false))
        g->mutex_.unlock();
      else
        new (&g->mutex_) std::mutex;
      if (g->in_child_) g->in_child_();
    }
    mutex.unlock();
  }

  void add(ForkGuard* g) {
    std::lock_guard lock(mutex);
    g->next_ = first;
    if (first) first->previous_ = g;
    first = g;
  }

  void remove(ForkGuard* g) {
    std::lock_guard lock(mutex);
    (g->previous_ ? g->previous_->next_ : first) = g->next_;
    if (g->next_) g->next_->previous_ = g->previous_;
  }
};

ForkGuard::ForkGuard(std::mutex& mutex, std::function<void()> in_child, Before before)
    : mutex_(mutex), in_child_(std::move(in_child)), before_(before) {
  ForkGuards::all().add(this);
}

ForkGuard::~ForkGuard() {
  ForkGuards::all().remove(this);
}

NoFork::NoFork() {
  ForkGuards& guards = ForkGuards::all();
  std::lock_guard lock(guards.mutex);
  ++guards.busy;
}

NoFork::~NoFork() {
  ForkGuards& guards = ForkGuards::all();
  std::lock_guard lock(guards.mutex);
  if (--guards.busy == 0) guards.idle.notify_all();
}

void renew(std::condition_variable& condition) {
  new (&condition) std::condition_variable;
}

}  // namespace tandem
