#include "device/cuda/launcher.h"

#include <pthread.h>
#include <sched.h>

#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "device/cpu_limits.h"
#include "device/cuda/device.h"
#include "device/cuda/launches.h"
#include "device/relax.h"
#include "switches.h"

namespace tandem::cuda {

std::atomic<uint64_t> handed_over{0}, passed_on{0};

namespace {

constexpr size_t kPlaces = 512;      // of the ring
constexpr size_t kWords = 40;        // arguments of a kernel that is handed over, at most
constexpr size_t kFewest = 4;        // launches that make a graph
constexpr size_t kMost = 32;         // and at most
constexpr int kSightings = 3;        // of a row of kernels before it gets a graph, which takes as long as 60 launches
constexpr size_t kMostGraphs = 256;  // rows of kernels that are remembered
constexpr int kRow = 16;             // launches in kQuick that wake the thread
using Clock = std::chrono::steady_clock;
constexpr std::chrono::microseconds kQuick{500}, kSpin{100};

struct Place {
  KernelLaunch kernel;
  uint32_t count;
  uint64_t words[kWords];
};

// One more look at something that another thread does soon. Whoever looks for long lets others have the processor,
// among them perhaps that thread.
void look_again(int& looked) {
  if (++looked < 1000)
    relax();
  else
    sched_yield();
}

bool same_kernel(const Place& a, const Place& b) {
  return a.kernel.function == b.kernel.function && a.count == b.count &&
         a.kernel.shared_bytes == b.kernel.shared_bytes && a.kernel.threads[0] == b.kernel.threads[0] &&
         a.kernel.threads[1] == b.kernel.threads[1];
}

bool same_arguments(const Place& a, const Place& b) {
  return a.kernel.blocks == b.kernel.blocks && std::memcmp(a.words, b.words, a.count * sizeof a.words[0]) == 0;
}

KernelNodeParams node_of(const Place& place, void** arguments) {
  KernelNodeParams p{};
  p.function = place.kernel.function;
  p.grid[0] = place.kernel.blocks;
  p.grid[1] = p.grid[2] = p.block[2] = 1;
  p.block[0] = place.kernel.threads[0];
  p.block[1] = place.kernel.threads[1];
  p.shared_bytes = place.kernel.shared_bytes;
  p.arguments = arguments;
  return p;
}

// A row of kernels that came again and again, as a graph, with the arguments that it has now.
struct Row {
  int seen = 0;
  Graph graph = nullptr;  // has the nodes
  GraphExec executable = nullptr;
  std::vector<GraphNode> nodes;
  std::vector<Place> places;
};

void destroy(Row& row) {
  if (row.executable) driver().graph_exec_destroy(row.executable);  // what is still on its way is finished first
  if (row.graph) driver().graph_destroy(row.graph);
  row.executable = nullptr;
  row.graph = nullptr;
}

thread_local bool passes_on = false;  // this is the thread that everybody waits for

// Never destroyed: its thread is in it until the process is gone.
class Launcher {
 public:
  bool take(const KernelLaunch& kernel, const uint64_t* words, size_t count) {
    std::lock_guard guard(mutex_);
    const uint64_t at = handed_over.load(std::memory_order_relaxed);
    if (asleep_.load(std::memory_order_acquire)) {
      if (!comes_quickly()) return false;
      if (!running_) start();
      if (!running_) return false;
      asleep_.store(0, std::memory_order_release);
      asleep_.notify_one();
    }
    for (int looked = 0; at - passed_on.load(std::memory_order_acquire) >= kPlaces;) look_again(looked);
    Place& place = ring_[at % kPlaces];
    place.kernel = kernel;
    place.count = static_cast<uint32_t>(count);
    std::memcpy(place.words, words, count * sizeof words[0]);
    handed_over.store(at + 1, std::memory_order_release);
    return true;
  }

  void rest() {
    row_.store(0, std::memory_order_relaxed);
    if (asleep_.load(std::memory_order_relaxed)) return;
    std::lock_guard guard(mutex_);
    if (passed_on.load(std::memory_order_acquire) == handed_over.load(std::memory_order_relaxed))
      asleep_.store(1, std::memory_order_release);
  }

  // In a child of fork: without a thread, and with nothing to wait for.
  void forget() {
    off.store(true, std::memory_order_relaxed);
    passed_on.store(handed_over.load(std::memory_order_relaxed), std::memory_order_release);
    new (&mutex_) std::mutex;
  }

  std::atomic<bool> off{false};
  std::atomic<Status> failure{0};

 private:
  // Whether launches follow each other so closely that a thread for them pays.
  bool comes_quickly() {
    const Clock::time_point now = Clock::now();
    int row = row_.load(std::memory_order_relaxed);
    if (row == 0 || now - first_ > kQuick) first_ = now, row = 0;
    row_.store(++row < kRow ? row : 0, std::memory_order_relaxed);
    return row == kRow;
  }

  void start() {
    try {
      std::thread([this] { run(); }).detach();
      running_ = true;
    } catch (const std::exception&) {
      off.store(true, std::memory_order_relaxed);
    }
  }

  void run() {
    passes_on = true;
    uint64_t next = passed_on.load(std::memory_order_relaxed);
    for (;;) {
      uint64_t end = wait_beyond(next);
      while (next != end) {
        next += pass_on(next, end);
        passed_on.store(next, std::memory_order_release);
        end = handed_over.load(std::memory_order_acquire);
      }
    }
  }

  // Waits until there is something behind `next`: a little while attentively, then asleep.
  uint64_t wait_beyond(uint64_t next) {
    Clock::time_point until = Clock::now() + kSpin;
    for (;;) {
      for (int k = 0; k < 64; ++k) {
        const uint64_t end = handed_over.load(std::memory_order_acquire);
        if (end != next) return end;
        relax();
      }
      if (Clock::now() < until && !asleep_.load(std::memory_order_acquire)) continue;
      {
        // Nobody hands anything over meanwhile. Who holds it may be waiting for a place, and must not be waited for.
        std::unique_lock guard(mutex_, std::try_to_lock);
        if (!guard || handed_over.load(std::memory_order_acquire) != next) continue;
        asleep_.store(1, std::memory_order_release);
      }
      asleep_.wait(1, std::memory_order_acquire);
      until = Clock::now() + kSpin;
    }
  }

  // Gives the device one launch, or a row of them as a graph; how many.
  size_t pass_on(uint64_t next, uint64_t end) {
    Place& first = ring_[next % kPlaces];
    if (first.kernel.device != active_device) activate(first.kernel.device);
    size_t count = 1;
    while (count < kMost && next + count != end && follows(ring_[(next + count) % kPlaces], first)) ++count;
    count = std::bit_floor(count);  // rows are of 4, 8, 16 or 32, so that there are few of them
    bool may_make = true;           // the longest alone
    for (; count >= kFewest; count /= 2, may_make = false)
      if (Row* row = row_of(next, count, may_make))
        if (launch_row(*row, next, first.kernel.stream)) return count;
    const KernelLaunch& k = first.kernel;
    if (Status status = launch(k.device, k.function, k.blocks, k.threads, k.shared_bytes, k.stream, first.words))
      failure.store(status, std::memory_order_relaxed);
    return 1;
  }

  static bool follows(const Place& place, const Place& first) {
    return place.kernel.stream == first.kernel.stream && place.kernel.device == first.kernel.device;
  }

  // The graph of a row of kernels, made when it has come often enough; null if it has none.
  Row* row_of(uint64_t next, size_t count, bool may_make) {
    uint64_t hash = count;
    for (size_t k = 0; k < count; ++k) {
      const Place& place = ring_[(next + k) % kPlaces];
      hash = (hash ^ reinterpret_cast<uint64_t>(place.kernel.function)) * 0x9E3779B97F4A7C15u;
      hash ^= (hash >> 29) + place.count;
    }
    auto found = rows_.find(hash);
    if (found == rows_.end()) {
      if (!may_make) return nullptr;
      if (rows_.size() >= kMostGraphs) {
        for (auto& [_, row] : rows_) destroy(row);
        rows_.clear();
      }
      found = rows_.emplace(hash, Row{}).first;
    }
    Row& row = found->second;
    if (!row.executable && (!may_make || ++row.seen < kSightings || !make(row, next, count))) return nullptr;
    if (row.places.size() != count) return nullptr;
    for (size_t k = 0; k < count; ++k)
      if (!same_kernel(row.places[k], ring_[(next + k) % kPlaces])) return nullptr;  // the hash of another
    return &row;
  }

  bool make(Row& row, uint64_t next, size_t count) {
    const Driver& d = driver();
    Status status = d.graph_create(&row.graph, 0);
    row.nodes.assign(count, nullptr);
    row.places.resize(count);
    for (size_t k = 0; k < count && !status; ++k) {
      row.places[k] = ring_[(next + k) % kPlaces];
      void* arguments[] = {row.places[k].words};
      const KernelNodeParams p = node_of(row.places[k], arguments);
      status = d.graph_add_kernel(&row.nodes[k], row.graph, k ? &row.nodes[k - 1] : nullptr, k ? 1 : 0, &p);
    }
    if (!status) status = d.instantiate(&row.executable, row.graph, 0);
    if (status) give_up(row);
    return status == 0;
  }

  static void give_up(Row& row) {
    destroy(row);
    row.seen = -1000;  // not soon again
  }

  bool launch_row(Row& row, uint64_t next, Stream stream) {
    const Driver& d = driver();
    for (size_t k = 0; k < row.places.size(); ++k) {
      const Place& place = ring_[(next + k) % kPlaces];
      if (same_arguments(row.places[k], place)) continue;
      row.places[k].kernel.blocks = place.kernel.blocks;
      std::memcpy(row.places[k].words, place.words, place.count * sizeof place.words[0]);
      void* arguments[] = {row.places[k].words};
      const KernelNodeParams p = node_of(row.places[k], arguments);
      if (d.graph_set_kernel(row.executable, row.nodes[k], &p)) {
        give_up(row);
        return false;
      }
    }
    if (Status status = d.graph_launch(row.executable, stream)) failure.store(status, std::memory_order_relaxed);
    return true;
  }

  std::mutex mutex_;  // of those who hand over
  bool running_ = false;
  std::atomic<int> row_{0};  // launches since first_
  Clock::time_point first_;
  std::atomic<int> asleep_{1};
  std::unordered_map<uint64_t, Row> rows_;
  Place ring_[kPlaces];
};

bool is_wanted() {
  static const bool pays = usable_cpus() >= 4;
  const int wanted = switches::get(switches::launcher);
  return wanted < 0 ? pays : wanted != 0;
}

std::atomic<Launcher*> made{nullptr};

Launcher* make_launcher() {
  static Launcher* const instance = [] {
    made.store(new Launcher);
    pthread_atfork(nullptr, nullptr, [] { made.load()->forget(); });
    std::atexit([] {  // before the driver's own ending
      made.load()->off.store(true, std::memory_order_relaxed);
      settle();
    });
    return made.load();
  }();
  return instance;
}

// Null where nobody has wanted one so far.
Launcher* launcher() {
  Launcher* l = made.load(std::memory_order_acquire);
  return l || !is_wanted() ? l : make_launcher();
}

}  // namespace

bool hand_over(const KernelLaunch& kernel, const uint64_t* words, size_t count) {
  Launcher* l = is_wanted() ? launcher() : nullptr;
  if (!l || count > kWords || l->off.load(std::memory_order_relaxed)) return false;
  if (l->failure.load(std::memory_order_relaxed)) [[unlikely]]
    return false;  // what is launched directly tells
  return l->take(kernel, words, count);
}

void settle_slow() {
  if (passes_on) return;
  const uint64_t end = handed_over.load(std::memory_order_acquire);
  for (int looked = 0; static_cast<int64_t>(passed_on.load(std::memory_order_acquire) - end) < 0;) look_again(looked);
}

void library_follows() {
  settle();
  if (Launcher* l = launcher()) l->rest();
}

Status launch_failure() {
  Launcher* l = launcher();
  return l && l->failure.load(std::memory_order_relaxed) ? l->failure.exchange(0) : 0;
}

void share_streams() {
  if (Launcher* l = launcher()) l->off.store(true, std::memory_order_relaxed);
  settle();
}

}  // namespace tandem::cuda
