// What a rank does where tensors lie on CUDA devices; see Note [Collectives on devices].
#include <Python.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string_view>
#include <thread>

#include "check.h"
#include "collectives/futex.h"
#include "collectives/member.h"
#include "device/cuda/device.h"
#include "device/cuda/launches.h"
#include "replay/replay.h"

namespace tandem::collectives {
namespace {

constexpr int kAll = -1;
constexpr int64_t kIdTag = 0x6e63636c;

// Equal for ranks of one host that see the same device.
int64_t place_of(int device) {
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  return static_cast<int64_t>(std::hash<std::string_view>{}(visible ? visible : "") >> 8) + device;
}

Request host_request(Kind kind, DType dtype, int64_t count, const Request& on_behalf_of) {
  Request made{kind};
  made.dtype = dtype;
  made.ndim = 1;
  made.shape[0] = count;
  made.line = on_behalf_of.line;
  return made;
}

// A group of one, where everything is a copy.
void copy_alone(const Request& request, int device) {
  for (const Piece& p : request.pieces)
    if (p.in && p.out && p.in != p.out)
      cuda::copy_on_device(device, p.out, p.in, static_cast<size_t>(p.out_count) * item_size(request.dtype));
}

std::atomic<int> groups_given_up{0};

void raise_failures() {  // after the host has waited for a device
  if (!groups_given_up.load()) return;
  const std::shared_ptr<Context> context = Context::current();
  if (!context) return;
  for (const auto& group : context->groups())
    if (group) group->raise_device_failure();
}

const bool raises = (cuda::after_wait = &raise_failures, true);

}  // namespace

bool Member::queue(const Request& request, int device, cuda::Stream stream) {
  if (left_) fail(ErrorKind::Distributed, "this group of ranks was destroyed\n  fix: call init_process_group again");
  if (size_ == 1) return copy_alone(request, device), true;
  if (cuda::recording) {  // ranks have agreed to record, and meet before each launch of the graph
    if (!device_ || !has_device_routine(request)) fail(ErrorKind::Unsupported, "a collective that graphs cannot have");
    return device_->queue(request, stream), true;
  }
  if (request.kind == Kind::Send || request.kind == Kind::Receive) return queue_message(request, device, stream);
  const std::lock_guard guard(mutex_);
  auto [described, entry] = begin(request);
  arrive();
  compare(request);
  if (!has_device_routine(request)) return entry.done.store(true), false;
  if (!device_opened_) open_device(request, device);
  if (!device_) return entry.done.store(true), false;
  try {
    device_->queue(request, stream);
  } catch (const Error&) {
    if (find_failure()) tell_failure(described.call);
    throw;
  }
  if (of_threads()) arrive();
  entry.done.store(true);
  return true;
}

// All ranks at once: each tells whether it has NCCL and which device it uses.
void Member::open_device(const Request& request, int device) {
  std::string why;
  const nccl::Api* api = nccl::api(&why);
  const std::vector<int64_t> has = hold_meeting(host_request(Kind::Barrier, DType::Int64, 0, request), api != nullptr);
  const std::vector<int64_t> places =
      hold_meeting(host_request(Kind::Barrier, DType::Int64, 0, request), place_of(device));
  device_opened_ = true;
  futex_wake(board_->header().questions);  // the watcher may be in a long sleep, and looks more often from now on
  const auto without = std::find(has.begin(), has.end(), 0);
  std::string problem;
  if (without != has.end()) {
    problem = name(static_cast<int>(without - has.begin())) + " cannot open NCCL" + (why.empty() ? "" : ": " + why);
  } else {
    if (std::set<int64_t>(places.begin(), places.end()).size() < places.size())
      setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);  // ranks share a device
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);           // all are on this host; what else there is may lead nowhere
    nccl::UniqueId id{};
    if (rank_ == 0) nccl::check(api->get_unique_id(&id), "beginning a group");
    Request give = host_request(Kind::Broadcast, DType::UInt8, sizeof id, request);
    give.root = 0;
    give.pieces.push_back({id.bytes, id.bytes, sizeof id, sizeof id});
    collect(give);
    try {
      device_ = open_lane(device, rank_, size_, id, descriptor(rank_).call);
    } catch (const Error& error) {
      if (board_->header().first_failed.load()) throw;
      problem = error.what();
    }
    const std::vector<int64_t> open =
        hold_meeting(host_request(Kind::Barrier, DType::Int64, 0, request), device_ != nullptr);
    const auto failed = std::find(open.begin(), open.end(), 0);
    if (failed != open.end() && problem.empty())
      problem = name(static_cast<int>(failed - open.begin())) + " cannot use NCCL";
    if (failed != open.end()) device_ = nullptr;
  }
  if (problem.empty()) return;
  if (requires_nccl_) fail(ErrorKind::Distributed, problem, "\n  fix: pip install nvidia-nccl-cu13");
  if (rank_ == 0) fprintf(stderr, "tandem: collectives of CUDA tensors go through host memory: %s\n", problem.c_str());
}

std::shared_ptr<DeviceLane> Member::open_lane(int device, int rank, int size, const nccl::UniqueId& id,
                                              const Call& call) {
  auto made = DeviceLane::open(device, rank, size, id, [&] {
    check_presence(kAll, call);
    if (check_interrupt) check_interrupt();
  });
  const std::lock_guard guard(lanes_mutex_);
  lanes_.push_back(made);
  return made;
}

// Messages have a lane for each pair of ranks and direction, so that none holds up a collective or another pair. The
// first one of a lane comes with its name, which the sender chooses. Between threads they go through host memory:
// making a lane allocates device memory, which may wait for the kernels of another lane, which wait for this thread.
bool Member::queue_message(const Request& request, int device, cuda::Stream stream) {
  const nccl::Api* api = of_threads() ? nullptr : nccl::api(nullptr);
  if (!api) return false;
  const bool sends = request.kind == Kind::Send;
  sends ? send(request) : receive(request);  // what it is; the elements follow on the device
  std::shared_ptr<DeviceLane> lane;
  {
    const std::lock_guard guard(lanes_mutex_);
    lane = pairs_[{sends, request.root}];
  }
  if (!lane) {
    nccl::UniqueId id{};
    Request give = host_request(request.kind, DType::UInt8, sizeof id, request);
    give.root = request.root;
    give.tag = kIdTag;
    give.pieces.push_back({sends ? id.bytes : nullptr, sends ? nullptr : id.bytes, sizeof id, sizeof id});
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    if (sends) nccl::check(api->get_unique_id(&id), "beginning a group");
    sends ? send(give) : receive(give);
    Descriptor described;
    describe(request, false, described);
    lane = open_lane(device, sends ? 0 : 1, 2, id, described.call);
    const std::lock_guard guard(lanes_mutex_);
    pairs_[{sends, request.root}] = lane;
  }
  lane->queue(request, stream);
  return true;
}

// By the watcher, now and then.
void Member::watch_devices() {
  if (!device_opened_ || gave_up_.load() || !find_failure()) return;
  std::vector<std::shared_ptr<DeviceLane>> lanes;
  {
    const std::lock_guard guard(lanes_mutex_);
    lanes = lanes_;
  }
  gave_up_ = true;
  ++groups_given_up;
  for (const auto& lane : lanes) lane->give_up();
}

void Member::raise_device_failure() {
  if (!gave_up_.load() || told_.exchange(true)) return;
  const Slot& mine = board_->slot(rank_);
  tell_failure(mine.entries[mine.entered.load() % kRecords].call);
}

// What this rank has queued is done before it leaves, so that others get theirs; graphs go before what they use.
void Member::close_devices(bool failed) noexcept {
  std::vector<std::shared_ptr<DeviceLane>> lanes;
  {
    const std::lock_guard guard(lanes_mutex_);
    lanes = std::exchange(lanes_, {});
    pairs_.clear();
  }
  device_ = nullptr;
  if (lanes.empty()) return;
  constexpr auto kMost = std::chrono::seconds(10);
  const auto end = Clock::now() + kMost;
  for (const auto& lane : lanes)
    while (!failed && !gave_up_.load() && !lane->is_idle() && !find_failure() && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
  if (Py_IsInitialized()) {
    const PyGILState_STATE state = PyGILState_Ensure();
    forget_graphs_of(number);
    PyGILState_Release(state);
  }
  for (const auto& lane : lanes) lane->give_up();
  if (gave_up_.load()) --groups_given_up;
}

}  // namespace tandem::collectives
