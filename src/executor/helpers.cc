#include "executor/helpers.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "fork_guard.h"

namespace tandem::flow {

namespace {

struct Pool {
  std::mutex mutex;  // guards all below
  std::condition_variable wake;
  std::deque<std::function<void()>> work;
  int idle = 0;

  void serve() {
    std::unique_lock lock(mutex);
    while (true) {
      ++idle;
      wake.wait(lock, [this] { return !work.empty(); });
      --idle;
      std::function<void()> next = std::move(work.front());
      work.pop_front();
      lock.unlock();
      next();
      next = nullptr;
      lock.lock();
    }
  }
};

// Never destroyed: its threads wait on it until the process is gone. A child process after fork has none of them.
std::mutex pool_mutex;
Pool* the_pool = nullptr;
ForkGuard fork_pool(pool_mutex, [] { the_pool = nullptr; });

Pool& pool() {
  std::lock_guard guard(pool_mutex);
  if (!the_pool) the_pool = new Pool;
  return *the_pool;
}

}  // namespace

void start_helper(std::function<void()> work) {
  Pool& p = pool();
  std::lock_guard guard(p.mutex);
  p.work.push_back(std::move(work));
  // Waiting tasks must never wait for a thread: as many threads as there is work at once.
  if (p.idle < static_cast<int>(p.work.size()))
    std::thread([&p] { p.serve(); }).detach();
  else
    p.wake.notify_one();
}

}  // namespace tandem::flow
