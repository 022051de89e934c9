#include "device/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "device/cpu_limits.h"
#include "device/relax.h"

#ifdef __linux__
#include <linux/futex.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tandem {
namespace {

// Below this many nanoseconds of work, sharing costs more than it saves: much more so if the workers have to be woken.
constexpr double kWorthSharing = 15'000, kWorthWaking = 40'000;
constexpr double kSmallestPiece = 5'000;
// Note [Waiting]
// Waiting threads look for a change for a while before they sleep: waking one costs many microseconds. A worker looks
// longer while jobs keep coming soon after one another. Who finds a member of its job on its own core gives it the core
// with every look (a region of 50 us took 600). Otherwise a waiting thread keeps its core while it looks: another
// process that wants the core would have it for milliseconds, at every wait. (A network of 60 layers took 180 ms beside
// a busy process, and 14 without giving way.) For the same reason workers ask the scheduler for short turns, which they
// then get sooner.
using Microseconds = std::chrono::duration<double, std::micro>;
constexpr Microseconds kAlone{3}, kShortSpin{5}, kLongSpin{150};

thread_local bool inside = false;

// An integer that threads can sleep on until it changes.
class Signal {
 public:
  std::atomic<uint32_t> value{0};

  // Returns when the value is no longer `old`, and how long that took; crowded(): whether to give way. See Note
  // [Waiting].
  template <typename F>
  Microseconds wait_while(uint32_t old, Microseconds spin, const F& crowded) {
    const auto start = std::chrono::steady_clock::now();
    Microseconds elapsed{0};
    do {
      for (int i = 0; i < 32; ++i) {
        if (value.load(std::memory_order_acquire) != old) return elapsed;
        relax();
      }
      elapsed = std::chrono::steady_clock::now() - start;
      if (elapsed > kAlone && crowded()) sched_yield();
    } while (elapsed < spin);
    sleepers_.fetch_add(1);
    while (value.load() == old) sleep(old);
    sleepers_.fetch_sub(1);
    return std::chrono::steady_clock::now() - start;
  }

  bool has_sleepers() const { return sleepers_.load(std::memory_order_relaxed) > 0; }

  void wake(int count) {  // after a change of value
    if (sleepers_.load() == 0) return;
#ifdef __linux__
    syscall(SYS_futex, &value, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
#else
    (void)count;
    value.notify_all();
#endif
  }

 private:
  void sleep(uint32_t old) {
#ifdef __linux__
    syscall(SYS_futex, &value, FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
#else
    value.wait(old);
#endif
  }
  std::atomic<uint32_t> sleepers_{0};
};

// Of the calling thread; see Note [Waiting]. Linux knows it from 6.12 on, and earlier ones ignore it.
void ask_for_short_turns() {
#if defined(__linux__) && defined(SYS_sched_setattr)
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
  } wanted = {};
  wanted.size = sizeof(wanted);
  wanted.policy = SCHED_OTHER;
  if (sched_getscheduler(0) != SCHED_OTHER) return;
  wanted.nice = getpriority(PRIO_PROCESS, 0);
  wanted.runtime = 100'000;  // nanoseconds
  syscall(SYS_sched_setattr, 0, &wanted, 0);
#endif
}

// Note [Cores of a job]
// The kernel may wake a worker on the core of the thread that it works for, or of another worker, although cores idle,
// and leave both there for seconds: two threads are as slow as one then. So the members of a job note the cores that
// they run on, and who finds another one on its own moves to a core without one. It may be scheduled anywhere again
// after that. Elsewhere than on Linux nothing is noted.
class Cores {
 public:
#ifdef __linux__
  void clear() {
    for (auto& word : taken_) word.store(0, std::memory_order_relaxed);
    for (auto& core : members_) core.store(-1, std::memory_order_relaxed);
    note(0, sched_getcpu());
  }
  void join(int number) {
    if (const int core = sched_getcpu(); note(number, core)) return;
    cpu_set_t all, others;
    if (sched_getaffinity(0, sizeof(all), &all)) return;
    others = all;
    for (int core = 0; core < kMost; ++core)
      if (taken_[core / 64].load(std::memory_order_relaxed) >> (core % 64) & 1) CPU_CLR(core, &others);
    if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof(others), &others)) return;
    sched_setaffinity(0, sizeof(all), &all);
    note(number, sched_getcpu());
  }
  // Whether another member that has come to the job was on the core where this one is now.
  bool shared(int number) const {
    const int core = sched_getcpu();
    for (int other = 0; other < kMembers; ++other)
      if (other != number && members_[other].load(std::memory_order_relaxed) == core) return true;
    return false;
  }

 private:
  static constexpr int kMost = 512, kMembers = 64;
  std::atomic<uint64_t> taken_[kMost / 64]{};
  std::atomic<int> members_[kMembers]{};

  bool note(int number, int core) {  // whether nobody else is there
    if (number < kMembers) members_[number].store(core, std::memory_order_relaxed);
    if (core < 0 || core >= kMost) return true;
    const uint64_t bit = uint64_t{1} << (core % 64);
    return !(taken_[core / 64].fetch_or(bit, std::memory_order_relaxed) & bit);
  }
#else
  void clear() {}
  void join(int) {}
  bool shared(int) const { return true; }
#endif
};

// Note [Joining a job]
// The job's fields are the pool's own and are written only while no job is open and nobody is active. A worker first
// counts itself active and only then looks whether a job is open; the caller first closes the job and then waits until
// nobody is active. Whichever comes first in the total order, no worker touches a job's fields while the next one is
// being written.
class Pool {
 public:
  // The lock serialises jobs; it guards everything below except the atomics.
  std::mutex busy;

  void run_range(int64_t extent, int64_t piece, int participants, RangeBody body, void* data) {
    range_ = body, team_ = nullptr, data_ = data, extent_ = extent, piece_ = piece;
    num_shares_ = std::min(participants, kMostShares);
    for (int i = 0; i < num_shares_; ++i) {
      shares_[i].next.store(extent * i / num_shares_, std::memory_order_relaxed);
      shares_[i].end = extent * (i + 1) / num_shares_;
    }
    start(participants);
    take_pieces(0);
    finish();
  }

  bool workers_are_awake() const { return !epoch_.has_sleepers(); }

  void begin_team(int size, TeamBody body, void* data) {
    range_ = nullptr, team_ = body, data_ = data, extent_ = size;
    next_.store(1, std::memory_order_relaxed);  // the caller is number 0
    unfinished_.value.store(size - 1);
    start(size);
  }

  void end_team() {
    while (const uint32_t left = unfinished_.value.load())
      unfinished_.wait_while(left, kLongSpin, [this] { return cores_.shared(0); });
    finish();
  }

 private:
  void start(int participants) {
    grow(participants - 1);
    places_.store(participants - 1, std::memory_order_relaxed);
    error_ = nullptr;
    failed_.store(false, std::memory_order_relaxed);
    cores_.clear();
    const uint32_t id = epoch_.value.load() + 1;
    open_.store(id == 0 ? 1 : id);
    epoch_.value.store(id == 0 ? 1 : id);
    epoch_.wake(participants - 1);
  }

  void finish() {
    open_.store(0);
    while (const uint32_t count = active_.value.load())
      active_.wait_while(count, kLongSpin, [this] { return cores_.shared(0); });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  // Note [Shares]
  // A thread begins with its own share of the range, the same part of it in every job, and then helps the others with
  // theirs: what a kernel reads is mostly what this thread's core has written for the kernel before, and need not be
  // fetched from the cache of another core.
  void take_pieces(int number) {
    for (int i = 0; i < num_shares_; ++i) {
      Share& share = shares_[(number + i) % num_shares_];
      for (;;) {
        const int64_t begin = share.next.fetch_add(piece_, std::memory_order_relaxed);
        if (begin >= share.end) break;
        if (failed_.load(std::memory_order_relaxed)) return;
        guard([&] { range_(begin, std::min(begin + piece_, share.end), data_); });
      }
    }
  }

  template <typename F>
  void guard(F&& run) {
    inside = true;
    try {
      run();
    } catch (...) {
      if (!failed_.exchange(true)) error_ = std::current_exception();
    }
    inside = false;
  }

  void grow(int workers) {
    for (; workers_ < workers; ++workers_) {
      // Signals belong to the application's own threads.
      sigset_t all, old;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &old);
      std::thread([this, number = workers_ + 1] { work(number); }).detach();
      pthread_sigmask(SIG_SETMASK, &old, nullptr);
    }
  }

  void work(int number) {
    ask_for_short_turns();
    Microseconds spin = kShortSpin;
    const auto crowded = [this, number] { return cores_.shared(number); };
    for (uint32_t seen = 0;;) {
      spin = epoch_.wait_while(seen, spin, crowded) < kLongSpin ? kLongSpin : kShortSpin;
      const uint32_t now = epoch_.value.load();
      active_.value.fetch_add(1);  // see Note [Joining a job]
      const uint32_t id = open_.load();
      if (id == 0) {
        seen = now;  // a job opens before its epoch shows, so whatever `now` stands for is over
      } else if (id != seen) {
        seen = id;
        if (places_.fetch_sub(1) > 0) take_part(number);
      }
      if (active_.value.fetch_sub(1) == 1) active_.wake(1);
    }
  }

  void take_part(int number) {
    cores_.join(number);
    if (!team_) return take_pieces(number);
    const int index = static_cast<int>(next_.fetch_add(1));
    guard([&] { team_(index, static_cast<int>(extent_), data_); });
    if (unfinished_.value.fetch_sub(1) == 1) unfinished_.wake(1);
  }

  Signal epoch_;                   // changes with every job
  Signal active_;                  // workers between joining and leaving
  Signal unfinished_;              // members of the team still to finish
  std::atomic<uint32_t> open_{0};  // the id of the job that may be joined, or 0
  std::atomic<int> places_{0};
  std::atomic<int64_t> next_{0};  // number of a team that nobody has yet
  static constexpr int kMostShares = 64;
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  } shares_[kMostShares];
  int num_shares_ = 0;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
  Cores cores_;
  RangeBody range_ = nullptr;
  TeamBody team_ = nullptr;
  void* data_ = nullptr;
  int64_t extent_ = 0, piece_ = 1;
  int workers_ = 0;
};

// Never destroyed: workers sleep in it until the process ends. A forked child has none of its parent's threads, and the
// lock may be held by one of them, so the child starts over with a new pool.
std::atomic<Pool*> current_pool{nullptr};

Pool& pool() {
  static const bool registered = [] {
    current_pool.store(new Pool);
    pthread_atfork(nullptr, nullptr, [] {
      current_pool.store(new Pool);
      inside = false;
    });
    return true;
  }();
  (void)registered;
  return *current_pool.load();
}

int default_num_threads() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  const int count = text ? std::atoi(text) : 0;
  return count > 0 ? count : usable_cpus();
}

std::atomic<int>& thread_count() {
  static std::atomic<int> count{default_num_threads()};
  return count;
}

}  // namespace

int num_threads() {
  return thread_count().load(std::memory_order_relaxed);
}
void set_num_threads(int n) {
  thread_count().store(n == 0 ? default_num_threads() : std::clamp(n, 1, 1024));
}
bool in_parallel() {
  return inside;
}
Alone::Alone() : before_(std::exchange(inside, true)) {}
Alone::~Alone() {
  inside = before_;
}

void parallel_range(int64_t extent, double cost, RangeBody body, void* data) {
  if (extent <= 0) return;
  const double total = cost * static_cast<double>(extent);
  if (extent == 1 || total < kWorthSharing || inside || num_threads() == 1) return body(0, extent, data);
  Pool& pool = tandem::pool();
  if (total < kWorthWaking && !pool.workers_are_awake()) return body(0, extent, data);
  std::unique_lock lock(pool.busy, std::try_to_lock);
  if (!lock) return body(0, extent, data);  // another thread has the workers; sharing them would only add waiting

  const double useful =
      std::min({static_cast<double>(num_threads()), static_cast<double>(extent), total / kWorthSharing * 2});
  const int participants = static_cast<int>(std::max(useful, 2.0));
  // Several pieces each, so that a thread that loses its core for a while does not hold up the rest.
  const int64_t even = (extent + participants * 8 - 1) / (participants * 8);
  const int64_t cheap = static_cast<int64_t>(std::min(kSmallestPiece / std::max(cost, 1e-3), 1e18));
  const int64_t most = (extent + participants - 1) / participants;
  pool.run_range(extent, std::clamp<int64_t>(std::max(even, cheap), 1, most), participants, body, data);
}

int begin_team(int size, void (*prepare)(void*), TeamBody body, void* data) {
  if (size <= 1 || inside) return 1;
  Pool& pool = tandem::pool();
  pool.busy.lock();
  if (prepare) prepare(data);
  pool.begin_team(size, body, data);
  inside = true;
  return size;
}

void end_team(int size) {
  if (size <= 1) return;
  Pool& pool = tandem::pool();
  inside = false;
  std::lock_guard lock(pool.busy, std::adopt_lock);
  pool.end_team();
}

}  // namespace tandem
