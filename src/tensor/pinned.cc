#include "tensor/pinned.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/cuda/device.h"
#include "fork_guard.h"

namespace tandem {
namespace {

// Pinning takes milliseconds and waits for the device, so pinned memory is kept: in blocks whose sizes are powers of
// two. A block comes back when no copy uses it any more, because copies hold on to their storage.
struct PinnedBlock {
  void* memory;
  size_t bytes;
};
constexpr size_t kMostPinned = size_t{1} << 30;  // kept
std::mutex pinned_mutex;                         // guards the two below
ForkGuard fork_pinned(pinned_mutex);
size_t pinned_kept = 0;
std::map<size_t, std::vector<void*>>& pinned_blocks() {
  static auto* blocks = new std::map<size_t, std::vector<void*>>();
  return *blocks;
}

void release_pinned(void* context) {
  std::unique_ptr<PinnedBlock> block(static_cast<PinnedBlock*>(context));
  std::lock_guard guard(pinned_mutex);
  if (pinned_kept + block->bytes > kMostPinned) {
    cuda::driver().host_free(block->memory);
    return;
  }
  pinned_kept += block->bytes;
  pinned_blocks()[block->bytes].push_back(block->memory);
}

// Host memory that queued copies still use.
struct InFlight {
  cuda::Event event;
  Ref<Storage> storage;
};
std::mutex flight_mutex;  // guards in_flight
ForkGuard fork_flight(flight_mutex);
std::deque<InFlight>& in_flight() {
  static auto* list = new std::deque<InFlight>();
  return *list;
}

}  // namespace

void keep_until_done(int device, Storage* storage) {
  const cuda::Driver& d = cuda::driver();
  cuda::Event event = nullptr;
  constexpr unsigned kNoTiming = 2;
  cuda::check(d.event_create(&event, kNoTiming), "cuEventCreate");
  cuda::check(d.event_record(event, cuda::current_stream(device)), "cuEventRecord");
  std::deque<InFlight> done;  // released outside the lock
  std::lock_guard guard(flight_mutex);
  auto& list = in_flight();
  list.push_back({event, Ref<Storage>::share(storage)});
  while (!list.empty() && d.event_query(list.front().event) == 0) {
    d.event_destroy(list.front().event);
    done.push_back(std::move(list.front()));
    list.pop_front();
  }
}

Storage* allocate_pinned(size_t bytes) {
  auto block = std::make_unique<PinnedBlock>(PinnedBlock{nullptr, std::bit_ceil(std::max<size_t>(bytes, 4096))});
  {
    std::lock_guard guard(pinned_mutex);
    auto& list = pinned_blocks()[block->bytes];
    if (!list.empty()) {
      block->memory = list.back();
      list.pop_back();
      pinned_kept -= block->bytes;
    }
  }
  if (!block->memory) {
    constexpr unsigned kPortable = 1;
    if (cuda::active_device < 0) cuda::activate(0);
    cuda::check(cuda::driver().host_allocate(&block->memory, block->bytes, kPortable), "allocating pinned memory");
  }
  void* memory = block->memory;
  Storage* storage = Storage::borrow(memory, bytes, true, &release_pinned, block.release());
  storage->set_pinned();
  return storage;
}

void empty_pinned_cache() {
  std::lock_guard guard(pinned_mutex);
  for (auto& [bytes, list] : pinned_blocks()) {
    for (void* memory : list) cuda::driver().host_free(memory);
    list.clear();
  }
  pinned_kept = 0;
}

}  // namespace tandem
