#include "device/cuda/launches.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>

#include "check.h"
#include "device/cuda/device.h"
#include "fork_guard.h"
#include "library/fault_codes.h"
#include "switches.h"

namespace tandem::cuda {
namespace {

constexpr int kKept = 256;
struct Launch {
  char label[56];
};
Launch ring[kKept];
std::atomic<uint64_t> launched{0};

struct Checked {
  uint64_t number;
  std::string op, line;
};
std::mutex mutex;  // guards `checked` and the making of reports
ForkGuard fork_reports(mutex);
std::deque<Checked> checked;
Report* made[kMaxDevices];

}  // namespace

thread_local bool recording = false;

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

std::string recent_launches(int count) {
  uint64_t last = launched.load();
  std::string text = "\n  a kernel failed some time before; the last launches were, latest first:";
  for (int k = 0; k < count && last > static_cast<uint64_t>(k); ++k)
    text += std::string(k ? ", " : " ") + ring[(last - 1 - k) % kKept].label;
  return text;
}

Report* reports(int device) {
  std::lock_guard guard(mutex);
  if (!made[device]) {
    activate(device);
    void* memory = nullptr;
    constexpr unsigned kPortable = 1, kMapped = 2;
    check(driver().host_allocate(&memory, sizeof(Report), kPortable | kMapped), "allocating pinned memory");
    std::memset(memory, 0, sizeof(Report));
    made[device] = static_cast<Report*>(memory);
  }
  return made[device];
}

void note_checked_launch(uint64_t number, const std::string& op, const std::string& line) {
  std::lock_guard guard(mutex);
  checked.push_back({number, op, line});
  if (checked.size() > 4096) checked.pop_front();
}

void raise_device_errors(int device) {
  Report* report = made[device];
  if (!report || !static_cast<volatile Report*>(report)->written) return;
  std::atomic_thread_fence(std::memory_order_acquire);
  Report found = *report;
  std::memset(report, 0, sizeof *report);
  std::lock_guard guard(mutex);
  std::string op, line;
  for (const Checked& c : checked)
    if (c.number == found.number) op = c.op, line = c.line;
  const std::string where = line.empty() ? "" : "; launched at " + line;
  if (found.bound == library::kWeightsBound)
    fail(ErrorKind::Value, op.empty() ? "" : op + ": ", library::weight_fault(found.value), where);
  fail(ErrorKind::Index, op.empty() ? "" : op + ": ", "index ", found.value, " is out of range for an axis of size ",
       found.bound, where);
}

}  // namespace tandem::cuda
