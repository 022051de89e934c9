#include "device/cuda/launches.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include "check.h"
#include "device/cuda/device.h"
#include "fault_codes.h"
#include "fork_guard.h"
#include "switches.h"

namespace tandem::cuda {
namespace {

constexpr int kKept = 256;
struct Launch {
  char label[56];
};
Launch ring[kKept];
std::atomic<uint64_t> launched{0};

constexpr size_t kMostChecked = 4096;
std::mutex mutex;  // guards what launches check, and the making of reports
ForkGuard fork_reports(mutex);
std::deque<std::pair<uint64_t, std::shared_ptr<const Origin>>> checked;
std::map<uint64_t, std::shared_ptr<const Origin>> recorded_checks;
Report* made[kMaxDevices];

}  // namespace

constinit thread_local bool recording = false;

// Whether the device has the instruction, and nobody switched it off.
static bool launches_early(int device) {
  enum { kUnknown, kNo, kYes };
  static std::atomic<int> found[kMaxDevices];
  int known = found[device].load(std::memory_order_relaxed);
  if (known == kUnknown) [[unlikely]] {
    known = properties(device).major >= 9 ? kYes : kNo;
    found[device].store(known, std::memory_order_relaxed);
  }
  return known == kYes && switches::get(switches::early) != 0;
}

Status launch(int device, Function function, unsigned blocks, const unsigned (&threads)[2], unsigned shared_bytes,
              Stream stream, void* arguments) {
  void* parameters[] = {arguments};
  if (recording || !launches_early(device))
    return driver().launch(function, blocks, 1, 1, threads[0], threads[1], 1, shared_bytes, stream, parameters,
                           nullptr);
  constexpr int kProgrammaticSerialization = 6;
  LaunchAttribute early{};
  early.id = kProgrammaticSerialization;
  early.number = 1;
  const LaunchConfig config{{blocks, 1, 1}, {threads[0], threads[1], 1}, shared_bytes, stream, &early, 1};
  return driver().launch_with(&config, function, parameters, nullptr);
}

uint64_t note_launch(const char* label) {
  uint64_t number = launched.fetch_add(1, std::memory_order_relaxed);
  std::strncpy(ring[number % kKept].label, label, sizeof ring[0].label - 1);
  return number;
}

uint64_t launches_so_far() {
  return launched.load(std::memory_order_relaxed);
}

std::string recent_launches(int count) {
  uint64_t last = launched.load();
  std::string text = "\n  a kernel failed some time before; the last launches were, latest first:";
  for (int k = 0; k < count && last > static_cast<uint64_t>(k); ++k)
    text += std::string(k ? ", " : " ") + ring[(last - 1 - k) % kKept].label;
  return text;
}

// Waits for the device: nothing that is still queued may be written when the flag falls.
static void clear_flag(const Report* report) {
  const Driver& d = driver();
  check(d.synchronize_context(), "waiting for the device");
  check(d.set_bytes(report->failed, 0, sizeof(uint64_t), nullptr), "clearing a flag");
  check(d.synchronize_context(), "waiting for the device");
}

Report* reports(int device) {
  std::lock_guard guard(mutex);
  if (!made[device]) {
    activate(device);
    void* memory = nullptr;
    constexpr unsigned kPortable = 1, kMapped = 2;
    check(driver().host_allocate(&memory, sizeof(Report), kPortable | kMapped), "allocating pinned memory");
    auto* report = static_cast<Report*>(memory);
    std::memset(memory, 0, sizeof(Report));
    check(driver().allocate(&report->failed, sizeof(uint64_t)), "allocating device memory");
    clear_flag(report);
    made[device] = report;
  }
  return made[device];
}

Address failure_flag(int device) {
  Report* report = made[device];
  return (report ? report : reports(device))->failed;
}

void note_checked_launch(uint64_t number, std::shared_ptr<const Origin> origin) {
  std::shared_ptr<const Origin> oldest;  // goes when nothing is locked: it may want the GIL
  std::lock_guard guard(mutex);
  if (recording) {
    recorded_checks.emplace(number, std::move(origin));
    return;
  }
  checked.emplace_back(number, std::move(origin));
  if (checked.size() <= kMostChecked) return;
  oldest = std::move(checked.front().second);
  checked.pop_front();
}

void forget_checked_launches(uint64_t first, uint64_t last) {
  std::map<uint64_t, std::shared_ptr<const Origin>> forgotten;  // which go when nothing is locked
  std::lock_guard guard(mutex);
  for (auto at = recorded_checks.lower_bound(first); at != recorded_checks.lower_bound(last);)
    forgotten.insert(recorded_checks.extract(at++));
}

static std::shared_ptr<const Origin> find_checked(uint64_t number) {
  std::lock_guard guard(mutex);
  if (auto found = recorded_checks.find(number); found != recorded_checks.end()) return found->second;
  for (const auto& [launch, origin] : checked)
    if (launch == number) return origin;
  return nullptr;
}

void raise_device_errors(int device) {
  Report* report = made[device];
  if (!report || !static_cast<volatile Report*>(report)->written) return;
  std::atomic_thread_fence(std::memory_order_acquire);
  activate(device);
  clear_flag(report);
  const Report found = *report;
  std::memset(report, 0, offsetof(Report, failed));
  const bool weights = found.bound == library::kWeightsBound, divisor = found.bound == library::kDivisorBound;
  std::ostringstream text;
  if (weights)
    text << library::weight_fault(found.value);
  else if (divisor)
    text << kDividedByZero;
  else
    text << "index " << found.value << " is out of range for axis " << found.axis << " with size " << found.bound;
  Error error(weights ? ErrorKind::Value : divisor ? ErrorKind::Division : ErrorKind::Index, text.str());
  error.origin = find_checked(found.number);
  throw error;
}

}  // namespace tandem::cuda
