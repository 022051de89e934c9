// What a rank does where tensors lie on CUDA devices; see Note [Collectives on devices].
#include <Python.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <thread>

#include "check.h"
#include "collectives/member.h"
#include "collectives/on_devices.h"
#include "device/cuda/device.h"
#include "device/cuda/launches.h"
#include "replay/replay.h"

namespace tandem::collectives {
namespace {

constexpr int64_t kIdTag = 0x6e63636c;

// Equal for ranks of one host that see the same device.
int64_t place_of(int device) {
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const std::string place = std::string(host) + " " + (visible ? visible : "");
  return static_cast<int64_t>(std::hash<std::string>{}(place) >> 8) + device;
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

bool OnDevices::queue(const Request& request, int device, cuda::Stream stream) {
  if (is_left())
    fail(ErrorKind::Distributed, "this group of ranks was destroyed\n  fix: call init_process_group again");
  if (size() == 1) return copy_alone(request, device), true;
  if (cuda::recording) {  // ranks have agreed to record, and meet before each launch of the graph
    if (!device_ || !has_device_routine(request)) fail(ErrorKind::Unsupported, "a collective that graphs cannot have");
    return device_->queue(request, stream), true;
  }
  if (request.kind == Kind::Send || request.kind == Kind::Receive) return queue_message(request, device, stream);
  const std::lock_guard guard(mutex_);
  meet_alike(request, 0);
  if (!has_device_routine(request)) return false;
  if (!device_opened_) open_device(request, device);
  if (!device_) return false;
  try {
    device_->queue(request, stream);
  } catch (const Error&) {
    if (has_failed()) tell_failure(latest_call());
    throw;
  }
  meet_again();
  return true;
}

// All ranks at once: each tells whether it has NCCL and which device it uses.
void OnDevices::open_device(const Request& request, int device) {
  std::string why;
  const nccl::Api* api = nccl::api(&why);
  const std::vector<int64_t> has = meet_alike(host_request(Kind::Barrier, DType::Int64, 0, request), api != nullptr);
  const std::vector<int64_t> places =
      meet_alike(host_request(Kind::Barrier, DType::Int64, 0, request), place_of(device));
  device_opened_ = true;
  device_opened();
  const auto without = std::find(has.begin(), has.end(), 0);
  std::string problem;
  if (without != has.end()) {
    problem = name(static_cast<int>(without - has.begin())) + " cannot open NCCL" + (why.empty() ? "" : ": " + why);
  } else {
    if (std::set<int64_t>(places.begin(), places.end()).size() < places.size())
      setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);            // ranks share a device
    if (on_one_host()) setenv("NCCL_SOCKET_IFNAME", "lo", 0);  // what else there is may lead nowhere
    nccl::UniqueId id{};
    if (rank() == 0) nccl::check(api->get_unique_id(&id), "beginning a group");
    Request give = host_request(Kind::Broadcast, DType::UInt8, sizeof id, request);
    give.root = 0;
    give.pieces.push_back({id.bytes, id.bytes, sizeof id, sizeof id});
    run_alike(give);
    try {
      device_ = open_lane(device, rank(), size(), id, latest_call());
    } catch (const Error& error) {
      if (has_failed()) throw;
      problem = error.what();
    }
    const std::vector<int64_t> open =
        meet_alike(host_request(Kind::Barrier, DType::Int64, 0, request), device_ != nullptr);
    const auto failed = std::find(open.begin(), open.end(), 0);
    if (failed != open.end() && problem.empty())
      problem = name(static_cast<int>(failed - open.begin())) + " cannot use NCCL";
    if (failed != open.end()) device_ = nullptr;
  }
  if (problem.empty()) return;
  if (requires_nccl_) fail(ErrorKind::Distributed, problem, "\n  fix: pip install nvidia-nccl-cu13");
  if (rank() == 0) fprintf(stderr, "tandem: collectives of CUDA tensors go through host memory: %s\n", problem.c_str());
}

std::shared_ptr<DeviceLane> OnDevices::open_lane(int device, int rank, int size, const nccl::UniqueId& id,
                                                 const Call& call) {
  auto made = DeviceLane::open(device, rank, size, id, [&] { look(call); });
  const std::lock_guard guard(lanes_mutex_);
  lanes_.push_back(made);
  return made;
}

// Messages have a lane for each pair of ranks and direction, so that none holds up a collective or another pair. The
// first one of a lane comes with its name, which the sender chooses. Between threads they go through host memory:
// making a lane allocates device memory, which may wait for the kernels of another lane, which wait for this thread.
// A pair whose lane NCCL refuses (it does so on both sides) does without from then on.
bool OnDevices::queue_message(const Request& request, int device, cuda::Stream stream) {
  if (!sends_by_device() || !nccl::api(nullptr)) return false;
  const bool sends = request.kind == Kind::Send;
  const std::pair<bool, int> pair{sends, request.root};
  std::optional<std::shared_ptr<DeviceLane>> lane;
  {
    const std::lock_guard guard(lanes_mutex_);
    if (const auto found = pairs_.find(pair); found != pairs_.end()) lane = found->second;
  }
  if (lane && !*lane) return false;
  run(request);  // what it is; the elements follow on the device
  if (!lane) {
    lane = open_pair(request, device);
    const std::lock_guard guard(lanes_mutex_);
    pairs_[pair] = *lane;
  }
  if (!*lane) return false;
  (*lane)->queue(request, stream);
  return true;
}

std::shared_ptr<DeviceLane> OnDevices::open_pair(const Request& request, int device) {
  const bool sends = request.kind == Kind::Send;
  nccl::UniqueId id{};
  Request give = host_request(request.kind, DType::UInt8, sizeof id, request);
  give.root = request.root;
  give.tag = kIdTag;
  give.pieces.push_back({sends ? id.bytes : nullptr, sends ? nullptr : id.bytes, sizeof id, sizeof id});
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  if (sends) nccl::check(nccl::api(nullptr)->get_unique_id(&id), "beginning a group");
  run(give);
  Call call;
  describe(request, call);
  try {
    return open_lane(device, sends ? 0 : 1, 2, id, call);
  } catch (const Error& error) {
    if (has_failed() || requires_nccl_) throw;
    if (sends)
      fprintf(stderr, "tandem: messages of CUDA tensors from %s to %s go through host memory: %s\n",
              name(rank()).c_str(), name(request.root).c_str(), error.what());
  }
  return nullptr;
}

void OnDevices::watch_devices() {
  if (!device_opened_ || gave_up_.load() || !has_failed()) return;
  std::vector<std::shared_ptr<DeviceLane>> lanes;
  {
    const std::lock_guard guard(lanes_mutex_);
    lanes = lanes_;
  }
  gave_up_ = true;
  ++groups_given_up;
  for (const auto& lane : lanes) lane->give_up();
}

void OnDevices::raise_device_failure() {
  if (!gave_up_.load() || told_.exchange(true)) return;
  tell_failure(latest_call());
}

// What this rank has queued is done before it leaves, so that others get theirs; graphs go before what they use.
void OnDevices::close_devices(bool failed) noexcept {
  std::vector<std::shared_ptr<DeviceLane>> lanes;
  {
    const std::lock_guard guard(lanes_mutex_);
    lanes = std::exchange(lanes_, {});
    pairs_.clear();
  }
  device_ = nullptr;
  if (lanes.empty()) return;
  constexpr auto kMost = std::chrono::seconds(10);
  const auto end = std::chrono::steady_clock::now() + kMost;
  for (const auto& lane : lanes)
    while (!failed && !gave_up_.load() && !lane->is_idle() && !has_failed() && std::chrono::steady_clock::now() < end)
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
