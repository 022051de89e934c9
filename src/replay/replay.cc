#include "replay/replay.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "check.h"
#include "device/cuda/device.h"
#include "device/cuda/fills.h"
#include "device/cuda/launches.h"
#include "device/cuda/memory.h"
#include "library/cuda/host.h"
#include "modes.h"
#include "plan/plan.h"
#include "plan/region.h"
#include "profile/profile.h"
#include "replay/pieces.h"
#include "switches.h"
#include "tensor/layout_class.h"

namespace tandem {
namespace {

constexpr int kPlainRuns = 2;       // before recording: libraries choose their algorithms, and moving inputs show
constexpr int kMostRecordings = 6;  // of one set of sizes; one whose inputs never settle runs plainly
constexpr size_t kMostRecorded = 16, kMostSeen = 16;  // sets of sizes: with a graph, and those that may get one

constexpr int64_t kMostLaunches = 5000;  // of the iterations of loops in one graph

// A loop is recorded iteration by iteration, if its length is known and it has no loops inside. Branches and While
// loops depend on values, which the host reads.
bool recordable(const Instruction& in) {
  if (in.kind != Instruction::Kind::Region) return true;
  if (in.region->plans[0]->over_devices) return false;
  const auto plain = [](const Instruction& inner) { return inner.kind != Instruction::Kind::Region; };
  const std::vector<Instruction>& body = in.region->plans[0]->instructions;
  return in.region->kind == Region::Kind::Scan && std::all_of(body.begin(), body.end(), plain);
}

bool recordable(const Plan& plan) {
  return std::all_of(plan.instructions.begin(), plan.instructions.end(),
                     [](const Instruction& in) { return recordable(in); });
}

int64_t launches_of_loops(const Plan& plan, const PlanRun& run) {
  int64_t total = 0;
  for (const Instruction& in : plan.instructions)
    if (in.kind == Instruction::Kind::Region)
      total += run.slot(in.region->extent) * static_cast<int64_t>(in.region->plans[0]->instructions.size());
  return total;
}

int64_t launches_of(const Plan& plan, const PlanRun& run) {
  const auto each = [](int64_t n, const Instruction& in) {
    const bool launches = in.kind == Instruction::Kind::Kernel || in.kind == Instruction::Kind::Library;
    return n + (launches ? std::max<int64_t>(1, static_cast<int64_t>(in.parts.size())) : 0);
  };
  return std::accumulate(plan.instructions.begin(), plan.instructions.end(), launches_of_loops(plan, run), each);
}

size_t span_bytes(const View& v) {  // of a dense view
  return static_cast<size_t>(v.numel()) * item_size(v.dtype);
}

}  // namespace

Agreement agreement;

namespace {

std::vector<Replay*>& with_collectives() {  // GIL
  static auto* all = new std::vector<Replay*>;
  return *all;
}

}  // namespace

void forget_graphs_of(int64_t group) {
  for (Replay* replay : with_collectives()) replay->forget_graphs_of(group);
}

Replay* Plan::replay() const {
  const auto lane = static_cast<size_t>(rank_in_process);
  return lane < replays.size() ? replays[lane].get() : nullptr;
}

void run_replayed(const Plan& plan, PlanRun& run) {
  const auto lane = static_cast<size_t>(rank_in_process);
  if (plan.replays.size() <= lane) plan.replays.resize(lane + 1);
  if (!plan.replays[lane]) plan.replays[lane] = std::make_shared<Replay>(plan.device - 1);
  const std::shared_ptr<Replay> kept = plan.replays[lane];  // other threads may run while ranks wait for one another
  kept->run(plan, run);
}

Replay::~Replay() {
  std::erase(with_collectives(), this);
  for (auto& recording : recordings_) forget(*recording);
  if (event_) cuda::driver().event_destroy(event_);
}

void Replay::forget(Recording& recording) {
  if (begun_of_ == &recording) give_up(owner_);
  const cuda::Driver& d = cuda::driver();
  for (RecordedPiece& piece : recording.pieces) {
    if (piece.executable) d.graph_exec_destroy(piece.executable);
    if (piece.graph) d.graph_destroy(piece.graph);
  }
  recording.pieces.clear();
  for (Input& input : recording.inputs) input.place = nullptr, input.recorded = nullptr;
  cuda::forget_checked_launches(recording.first_launch, recording.last_launch);
  if (!pool_ || latest()) return;
  cuda::release_pool(device_, pool_);
  pool_ = 0;
}

// Leaves at most so many of the recordings that have a graph, or that have none: the ones used last.
void Replay::drop(bool recorded, size_t most) {
  size_t count = 0;
  std::erase_if(recordings_, [&](std::unique_ptr<Recording>& recording) {
    if (recording->pieces.empty() == recorded || ++count <= most) return false;
    forget(*recording);
    return true;
  });
}

const Replay::Recording* Replay::latest() const {
  for (const auto& recording : recordings_)
    if (!recording->pieces.empty()) return recording.get();
  return nullptr;
}

Replay::Recording& Replay::find(const Plan& plan, const PlanRun& run) {
  const size_t count = plan.initial.size();
  const auto same = [&](const auto& r) { return std::equal(r->ints.begin(), r->ints.end(), run.ints_); };
  auto found = std::find_if(recordings_.begin(), recordings_.end(), same);
  if (found == recordings_.end()) {
    drop(false, kMostSeen - 1);
    found = recordings_.insert(recordings_.begin(), std::make_unique<Recording>());
    (*found)->ints.assign(run.ints_, run.ints_ + count);
  }
  std::rotate(recordings_.begin(), found, found + 1);
  return *recordings_.front();
}

void Replay::forget_graphs_of(int64_t group) {
  for (auto& recording : recordings_)
    if (recording->group == group) forget(*recording);
}

// See Note [Replay]. Every rank comes here for the same runs; what it finds for itself is only what it wishes.
void Replay::run_agreed(const Plan& plan, PlanRun& run, int64_t group) {
  const int64_t kPlain = 0, kRecord = 1, kLaunch = 2;
  const auto agree = [&](int64_t wish) { return agreement.agree(plan, run, wish); };
  Recording& recording = find(plan, run);
  const bool can_launch = !recording.pieces.empty() && recording.group == group && fits(plan, run, recording);
  const bool settled = can_launch || settle(plan, run, recording);
  const bool may_record =
      settled && (can_launch || recording.runs >= kPlainRuns) && recording.recordings < kMostRecordings;
  int64_t wish = can_launch ? kLaunch + recording.number : may_record ? kRecord : kPlain;
  if (profile::recording() || launches_of_loops(plan, run) > kMostLaunches) wish = kPlain;
  const int64_t agreed = agree(wish);
  ++recording.runs;
  recording.replayed = agreed >= kLaunch;
  if (agreed < kLaunch || begun_of_ != &recording) give_up(owner_);
  if (agreed == kPlain) return run.run_on_device();
  if (agreed == kRecord) {
    if (std::ranges::find(with_collectives(), this) == with_collectives().end()) with_collectives().push_back(this);
    forget(recording);
    ++recording.recordings;
    drop(true, kMostRecorded - 1);
    recording.group = group;
    recording.number = agreement.new_recording(plan, run);
    const bool recorded = record(plan, run, recording);
    if (agree(recorded ? kRecord : kPlain) == kPlain) {
      forget(recording);
      hopeless_ = true;
      return run.run_on_device();
    }
  }
  launch(run, recording);
}

void Replay::run(const Plan& plan, PlanRun& run) {
  if (owner_ && owner_ != run.owner_) give_up(owner_);
  if (plan.waits) {
    const int64_t group = hopeless_ || !recordable(plan) ? -1 : agreement.group(plan, run);
    return group < 0 ? run.run_on_device() : run_agreed(plan, run, group);
  }
  if (!hopeless_ && recordings_.empty()) hopeless_ = !recordable(plan);
  if (hopeless_ || profile::recording() || launches_of_loops(plan, run) > kMostLaunches) {
    give_up(owner_);
    return run.run_on_device();
  }
  Recording& recording = find(plan, run);
  if (!recording.pieces.empty() && fits(plan, run, recording)) {
    recording.replayed = true;
    if (begun_of_ != &recording) give_up(owner_);
    return launch(run, recording);
  }
  give_up(owner_);
  const bool settled = settle(plan, run, recording);
  if (++recording.runs <= kPlainRuns || !settled) return run.run_on_device();
  forget(recording);
  if (recording.recordings >= kMostRecordings || !pays(plan, run, recording)) return run.run_on_device();
  ++recording.recordings;
  drop(true, kMostRecorded - 1);
  if (record(plan, run, recording)) return launch(run, recording);
  hopeless_ = true;
  run.run_on_device();
}

// Whether a graph takes fewer copies than it saves launches: programs of a few rows (Note [Cells] in autobatch/cells.h)
// mostly move what they are given and what they give.
bool Replay::pays(const Plan& plan, const PlanRun& run, const Recording& recording) {
  std::vector<int32_t> roots;
  const auto add_root = [&](int32_t root) {
    while (plan.values[root].kind == ValueKind::View) root = plan.values[root].source;
    if (plan.values[root].kind == ValueKind::Fresh && std::ranges::find(roots, root) == roots.end()) roots.push_back(root);
  };
  for (const Plan::Output& output : plan.outputs) add_root(output.value);
  for (const SavedItem& item : plan.saved)
    if (item.from == SavedItem::From::Temporary) add_root(item.index);
  auto copies = static_cast<int64_t>(roots.size());
  for (size_t i = 0; i < recording.inputs.size(); ++i)
    copies += recording.inputs[i].copied && run.inputs_[i].view && !plan.host_inputs[i];
  return copies < launches_of(plan, run);
}

// Whether inputs are where they were in the last run of these sizes, or may be copied.
bool Replay::settle(const Plan& plan, const PlanRun& run, Recording& recording) const {
  const size_t count = plan.num_inputs;
  bool settled = !std::exchange(recording.replayed, false) && recording.inputs.size() == count;
  recording.inputs.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const View* view = run.inputs_[i].view;
    if (!view) continue;
    Input& input = recording.inputs[i];
    if (settled && !input.copied && input.address != view->data) {
      const bool written =
          std::find(plan.written.begin(), plan.written.end(), static_cast<int32_t>(i)) != plan.written.end();
      uint8_t order[kMaxDims];
      if (written || classify(*view, order) == LayoutClass::Strided)
        settled = false;
      else
        input.copied = true;
    }
    if (!input.copied) input.address = view->data;
  }
  return settled;
}

bool Replay::fits(const Plan& plan, const PlanRun& run, const Recording& recording) const {
  for (size_t i = 0; i < recording.inputs.size(); ++i) {
    const View* view = run.inputs_[i].view;
    const Input& input = recording.inputs[i];
    if (view && !input.place && !plan.host_inputs[i] && input.recorded != view->data) return false;
  }
  return true;
}

void Replay::record_piece(PlanRun& run, const Piece& piece, cuda::Stream stream, Recording& recording) {
  const cuda::Driver& d = cuda::driver();
  RecordedPiece& recorded = recording.pieces.emplace_back();
  recorded.after = piece.after;
  constexpr int kRelaxed = 2;
  cuda::check(d.begin_capture(stream, kRelaxed), "recording a graph");
  cuda::recording = true;
  try {
    for (size_t k = 0; k < piece.instructions.size(); ++k) {
      run.run_on_device(*piece.instructions[k], &recorded.host_nodes);
      for (int32_t v : piece.done[k]) run.give_back(v);
    }
    run.end_side_work();
  } catch (...) {
    cuda::recording = false;
    cuda::Graph broken = nullptr;
    run.side_.clear();
    d.end_capture(stream, &broken);
    if (broken) d.graph_destroy(broken);
    throw;
  }
  cuda::recording = false;
  cuda::check(d.end_capture(stream, &recorded.graph), "recording a graph");
  cuda::fill_by_kernels(device_, recorded.graph);
  cuda::check(d.instantiate(&recorded.executable, recorded.graph, 0), "making a graph");
}

bool Replay::record(const Plan& plan, PlanRun& run, Recording& recording) {
  const cuda::Driver& d = cuda::driver();
  cuda::activate(device_);
  cuda::reports(device_);
  static thread_local cuda::Stream streams[cuda::kMaxDevices];  // ranks that are threads record at the same time
  cuda::Stream& stream = streams[device_];
  constexpr unsigned kNonBlocking = 1;
  if (!stream) cuda::check(d.stream_create(&stream, kNonBlocking, 0), "making a stream");
  const cuda::Stream before = cuda::current_streams[device_];
  if (!pool_) pool_ = cuda::new_pool();
  cuda::set_pool(pool_);
  recording.first_launch = cuda::launches_so_far();
  cuda::current_streams[device_] = stream;
  const auto restore = [&] {
    cuda::current_streams[device_] = before;
    cuda::set_pool(0);
  };
  try {
    for (size_t i = 0; i < recording.inputs.size(); ++i) {
      Input& input = recording.inputs[i];
      const View* view = run.inputs_[i].view;
      if (!view) continue;
      input.geometry.assign(view->shape, view->shape + view->ndim);
      input.geometry.insert(input.geometry.end(), view->strides, view->strides + view->ndim);
      input.recorded = view->data;
      if (!input.copied || plan.host_inputs[i]) continue;
      input.place = Ref<Storage>::adopt(Storage::allocate(span_bytes(*view), plan.device));
      input.recorded = input.place->data();
    }
    // The values of inputs are looked up once, when first used: give the graph's.
    for (size_t v = 0; v < plan.values.size(); ++v) {
      const PlanValue& value = plan.values[v];
      if (value.kind == ValueKind::Input && run.inputs_[value.source].view && !value.on_host)
        run.data_[v] = recording.inputs[value.source].recorded;
    }
    KnownInputs& known = recording.known = run.known_inputs_ ? *run.known_inputs_ : KnownInputs();
    const size_t before_ints = known.leaves + known.numbers;  // a program need not take integers as inputs
    const size_t inputs = recording.inputs.size();
    const bool dividable = run.known_inputs_ && (inputs == before_ints || inputs == known.calls.size());
    recording.captured_ints.clear();
    for (size_t i = before_ints; i < known.calls.size(); ++i) recording.captured_ints.push_back(run.inputs_[i].integer);
    for (const Piece& piece : divide(plan, dividable ? &known : nullptr)) record_piece(run, piece, stream, recording);
  } catch (...) {  // something that cannot be recorded; the plain run will say if it is more than that
    interpreter.clear_error();
    restore();
    run.forget_addresses();
    recording.last_launch = cuda::launches_so_far();
    forget(recording);
    return false;
  }
  restore();
  recording.last_launch = cuda::launches_so_far();
  recording.addresses.resize(plan.values.size());
  for (size_t v = 0; v < plan.values.size(); ++v)
    recording.addresses[v] = run.recorded_address(static_cast<int32_t>(v));
  // What the run holds goes back to the graph's pool, where nobody else takes it.
  run.forget_addresses();
  return true;
}

// The graph's memory is in use until the launch before is done: on another stream, that has to be waited for.
void Replay::follow(cuda::Stream stream) {
  if (launched_ && last_stream_ != stream) {
    const cuda::Driver& d = cuda::driver();
    constexpr unsigned kWithoutTiming = 2;
    if (!event_) cuda::check(d.event_create(&event_, kWithoutTiming), "making an event");
    cuda::check(d.event_record(event_, last_stream_), "noting an event");
    cuda::check(d.stream_wait_event(stream, event_, 0), "waiting for an event");
  }
  launched_ = true;
  last_stream_ = stream;
}

void Replay::launch_piece(PlanRun& run, RecordedPiece& piece, cuda::Stream stream) {
  const cuda::Driver& d = cuda::driver();
  for (HostNode& node : piece.host_nodes) {
    if (!run.update_words(node)) continue;
    const Instruction& in = *node.instruction;
    void* arguments[] = {node.words.data()};
    cuda::KernelNodeParams p{};
    p.function = static_cast<cuda::Function>(in.function);
    p.grid[0] = static_cast<unsigned>(run.blocks(in));
    p.grid[1] = p.grid[2] = 1;
    p.block[0] = in.threads[0];
    p.block[1] = in.threads[1];
    p.block[2] = 1;
    p.shared_bytes = in.shared;
    p.arguments = arguments;
    cuda::check(d.graph_set_kernel(piece.executable, node.node, &p), "putting numbers into a graph");
  }
  cuda::note_launch("graph");
  std::optional<cuda::GilReleased> released;
  if (run.plan_.waits) released.emplace();  // ranks that are threads launch theirs at the same time
  cuda::check(d.graph_launch(piece.executable, stream), "launching a graph");
}

void Replay::launch(PlanRun& run, Recording& recording) {
  const Plan& plan = run.plan_;
  cuda::activate(device_);
  const cuda::Stream stream = cuda::current_stream(device_);
  follow(stream);
  for (size_t i = owner_ ? copied_ : 0; i < recording.inputs.size(); ++i) {
    if (!recording.inputs[i].place) continue;
    const View* view = run.inputs_[i].view;
    cuda::copy_on_device(device_, recording.inputs[i].recorded, view->data, span_bytes(*view));
  }
  for (size_t k = owner_ ? begun_ : 0; k < recording.pieces.size(); ++k) launch_piece(run, recording.pieces[k], stream);
  give_up(owner_);
  if (plan.waits) agreement.launched(plan, run);
  // Results get memory of their own, and so does what backward needs: what lies in the graph's is overwritten by the
  // next launch.
  const auto copy_out = [&](int32_t root) {
    while (plan.values[root].kind == ValueKind::View) root = plan.values[root].source;
    const PlanValue& value = plan.values[root];
    if (value.kind != ValueKind::Fresh || run.storage_[root]) return;
    size_t bytes = item_size(value.dtype);
    for (int32_t s : value.shape) bytes *= static_cast<size_t>(run.ints_[s]);
    run.storage_[root] = Storage::allocate(bytes, plan.device);
    run.data_[root] = run.storage_[root]->data();
    cuda::copy_on_device(device_, run.data_[root], recording.addresses[root], bytes);
  };
  for (const Plan::Output& output : plan.outputs) copy_out(output.value);
  for (const SavedItem& item : plan.saved)
    if (item.from == SavedItem::From::Temporary) copy_out(item.index);
}

// -- ahead

int32_t Replay::first_ahead() const {
  const bool off = switches::get(switches::ahead) == 0;
  const Recording* recording = off || profile::recording() ? nullptr : latest();
  return !recording || recording->pieces.size() < 2 ? INT32_MAX : recording->pieces.front().after;
}

// What is captured in a run of a program is alike for all sizes.
size_t Replay::leaves() const {
  return latest() ? latest()->known.leaves : 0;
}
size_t Replay::numbers() const {
  return latest() ? latest()->known.numbers : 0;
}

bool Replay::give_up(const void* owner) {
  if (!owner_ || owner_ != owner) return false;
  owner_ = nullptr;
  begun_of_ = nullptr;
  return std::exchange(begun_, 0) > 0;
}

bool Replay::fits(const Plan& plan, const InputView& given, size_t leaf, const Recording& recording) const {
  const View* view = given.view;
  const Input& input = recording.inputs[leaf];
  const auto dims = static_cast<size_t>(view->ndim);
  return input.geometry.size() == 2 * dims && std::equal(view->shape, view->shape + dims, input.geometry.begin()) &&
         std::equal(view->strides, view->strides + dims, input.geometry.begin() + static_cast<int64_t>(dims)) &&
         (input.place || plan.host_inputs[leaf] || input.recorded == view->data);
}

// The latest recording that what is known so far allows.
Replay::Recording* Replay::find_ahead(const Plan& plan, int32_t calls, const InputView* inputs) {
  for (auto& recording : recordings_) {
    if (recording->pieces.size() < 2) continue;
    size_t leaf = 0;
    const KnownInputs& known = recording->known;
    while (leaf < known.leaves && known.calls[leaf] <= calls && fits(plan, inputs[leaf], leaf, *recording)) ++leaf;
    if (leaf == known.leaves || known.calls[leaf] > calls) return recording.get();
  }
  return nullptr;
}

int32_t Replay::go_ahead(const Plan& plan, const void* owner, int32_t calls, const InputView* inputs) {
  if (owner_ && owner_ != owner) give_up(owner_);  // somebody else was faster, in another thread
  if (!owner_) {
    begun_of_ = find_ahead(plan, calls, inputs);
    if (!begun_of_) return -1;
    owner_ = owner;
    begun_ = checked_ = copied_ = 0;
  }
  Recording& recording = *begun_of_;
  const KnownInputs& known = recording.known;
  for (; checked_ < known.leaves && known.calls[checked_] <= calls; ++checked_)
    if (!fits(plan, inputs[checked_], checked_, recording)) {
      give_up(owner);
      return -1;
    }
  const size_t before_ints = known.leaves + known.numbers;
  for (size_t k = 0; k < recording.captured_ints.size() && known.calls[before_ints + k] <= calls; ++k)
    if (inputs[before_ints + k].integer != recording.captured_ints[k]) {
      give_up(owner);
      return -1;
    }
  cuda::activate(device_);
  const cuda::Stream stream = cuda::current_stream(device_);
  follow(stream);
  for (; copied_ < checked_; ++copied_)
    if (recording.inputs[copied_].place)
      cuda::copy_on_device(device_, recording.inputs[copied_].recorded, inputs[copied_].view->data,
                           span_bytes(*inputs[copied_].view));
  PlanRun run(plan, inputs);  // for the numbers alone
  std::copy(recording.ints.begin(), recording.ints.end(), run.ints_);
  std::vector<RecordedPiece>& pieces = recording.pieces;
  for (; begun_ + 1 < pieces.size() && pieces[begun_].after <= calls; ++begun_)
    launch_piece(run, pieces[begun_], stream);
  return begun_ + 1 < pieces.size() ? pieces[begun_].after : INT32_MAX;
}

}  // namespace tandem
