#include "profile/profile.h"

#include <pthread.h>

#include <chrono>
#include <mutex>
#include <utility>

#include "device/cuda/device.h"
#include "device/cuda/memory.h"
#include "fork_guard.h"
#include "memory/allocator.h"
#include "source.h"

namespace tandem::profile {
namespace {

constexpr size_t kMost = 2'000'000;      // entries kept
constexpr size_t kMostPending = 20'000;  // launches with events that nobody looked at yet

struct Pending {  // a launch on a device
  size_t entry;
  cuda::Event start, end;
};
struct Clock {  // of a device: an event, and what the host's clock showed when it happened
  cuda::Event base = nullptr;
  int64_t host = 0;
};

std::mutex mutex;  // guards everything below
ForkGuard fork_profile(mutex);
Result result;
std::vector<Pending> pending;
std::vector<cuda::Event> spare[cuda::kMaxDevices];
Clock clocks[cuda::kMaxDevices];

thread_local const Entry* around = nullptr;  // the innermost Operator of this thread

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string user_line() {
  if (!interpreter.holds_lock()) return "";
  Source source = user_source();
  std::string line = format_source(source);
  interpreter.release(source.code);
  return line;
}

cuda::Event take_event(int device) {
  auto& list = spare[device];
  cuda::Event event = nullptr;
  if (list.empty()) {
    cuda::check(cuda::driver().event_create(&event, 0), "making an event");
    return event;
  }
  event = list.back();
  list.pop_back();
  return event;
}

void settle() {  // all launches so far; `mutex` is held
  const cuda::Driver& d = cuda::driver();
  for (const Pending& p : pending) {
    Entry& entry = result.entries[p.entry];
    const int device = entry.device - 1;
    cuda::activate(device);
    float since = 0, lasted = 0;
    if (d.event_synchronize(p.end) == 0 && d.event_elapsed(&since, clocks[device].base, p.start) == 0 &&
        d.event_elapsed(&lasted, p.start, p.end) == 0) {
      entry.start = clocks[device].host + static_cast<int64_t>(static_cast<double>(since) * 1e6);
      entry.duration = static_cast<int64_t>(static_cast<double>(lasted) * 1e6);
    }
    spare[device].push_back(p.start);
    spare[device].push_back(p.end);
  }
  pending.clear();
}

}  // namespace

bool start() {
  std::lock_guard guard(mutex);
  if (recording()) return false;
  result = {};
  active = true;
  return true;
}

Result stop() {
  active = false;
  std::lock_guard guard(mutex);
  if (!pending.empty()) settle();
  for (Clock& clock : clocks) {
    if (clock.base) cuda::driver().event_destroy(clock.base);
    clock = {};
  }
  for (auto& list : spare) {
    for (cuda::Event event : list) cuda::driver().event_destroy(event);
    list.clear();
  }
  return std::exchange(result, {});
}

void Scope::begin(Kind kind, const std::string& label, const Origin* origin, int device, cuda::Stream stream,
                  int64_t bytes) {
  if (kind == Kind::None) return;
  auto entry = std::make_unique<Entry>();
  entry->kind = kind;
  entry->label = label;
  entry->device = device;
  entry->thread = static_cast<uint64_t>(pthread_self());
  entry->stream = reinterpret_cast<uint64_t>(stream);
  entry->bytes = bytes;
  if (origin) {
    entry->op = origin->op;
    entry->line = origin->file.substr(origin->file.rfind('/') + 1) + ":" + std::to_string(origin->line);
  } else if (around && kind != Kind::Operator) {
    entry->op = around->label;
    entry->line = around->line;
  } else {
    entry->op = label;
    entry->line = user_line();
  }
  if (kind == Kind::Operator) {
    outer_ = around;
    around = entry.get();
  }
  entry->start = entry->launched = now();
  if (device) {
    std::lock_guard guard(mutex);
    cuda::activate(device - 1);
    const cuda::Driver& d = cuda::driver();
    Clock& clock = clocks[device - 1];
    if (!clock.base) {
      cuda::check(d.event_create(&clock.base, 0), "making an event");
      cuda::check(d.event_record(clock.base, stream), "recording an event");
      cuda::check(d.event_synchronize(clock.base), "waiting for an event");
      clock.host = now();
    }
    for (cuda::Event& event : events_) event = take_event(device - 1);
    cuda::check(d.event_record(events_[0], stream), "recording an event");
  }
  entry_ = std::move(entry);
}

void Scope::end() noexcept {
  if (entry_->kind == Kind::Operator) around = outer_;
  if (events_[1]) cuda::driver().event_record(events_[1], reinterpret_cast<cuda::Stream>(entry_->stream));
  entry_->duration = now() - entry_->start;
  entry_->live = entry_->device ? cuda::memory_stats(entry_->device - 1).live_bytes : memory_stats().live_bytes;
  std::lock_guard guard(mutex);
  if (!recording() || result.entries.size() >= kMost) {
    ++result.dropped;
    if (events_[1])
      for (cuda::Event event : events_) cuda::driver().event_destroy(event);
    return;
  }
  result.entries.push_back(std::move(*entry_));
  if (!events_[1]) return;
  pending.push_back({result.entries.size() - 1, events_[0], events_[1]});
  if (pending.size() >= kMostPending) settle();
}

}  // namespace tandem::profile
