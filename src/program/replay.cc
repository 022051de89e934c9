#include "program/replay.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "check.h"
#include "device/cuda/device.h"
#include "device/cuda/fills.h"
#include "device/cuda/launches.h"
#include "device/cuda/memory.h"
#include "dispatch/signature.h"
#include "program/pieces.h"
#include "program/plan.h"
#include "program/profile.h"
#include "program/region.h"
#include "switches.h"

namespace tandem {
namespace {

constexpr int kPlainRuns = 2;       // before recording: libraries choose their algorithms, and moving inputs show
constexpr int kMostRecordings = 6;  // of one program; one whose inputs never settle runs plainly

constexpr int64_t kMostLaunches = 5000;  // of the iterations of loops in one graph

// A loop is recorded iteration by iteration, if its length is known and it has no loops inside. Branches and While
// loops depend on values, which the host reads.
bool recordable(const Instruction& in) {
  if (in.kind != Instruction::Kind::Region) return true;
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

size_t span_bytes(const View& v) {  // of a dense view
  return static_cast<size_t>(v.numel()) * item_size(v.dtype);
}

}  // namespace

Replay::~Replay() {
  forget();
  if (event_) cuda::driver().event_destroy(event_);
}

void Replay::forget() {
  const cuda::Driver& d = cuda::driver();
  for (Recorded& piece : pieces_) {
    if (piece.executable) d.graph_exec_destroy(piece.executable);
    if (piece.graph) d.graph_destroy(piece.graph);
  }
  pieces_.clear();
  owner_ = nullptr;
  begun_ = 0;
  for (Input& input : inputs_) input.place = nullptr, input.recorded = nullptr;
  if (pool_) cuda::release_pool(device_, pool_);
  pool_ = 0;
}

void Replay::run(const Plan& plan, PlanRun& run) {
  if (owner_ && owner_ != run.owner_) give_up(owner_);
  if (!hopeless_ && runs_ == 0) hopeless_ = !recordable(plan);
  if (hopeless_ || profile::recording() || launches_of_loops(plan, run) > kMostLaunches) {
    give_up(owner_);
    return run.run_on_device();
  }
  const size_t count = plan.num_inputs;
  if (!pieces_.empty() && fits(plan, run)) {
    replayed_ = true;
    return launch(run);
  }
  give_up(owner_);
  // Which inputs moved since the last run?
  bool settled = !std::exchange(replayed_, false) && inputs_.size() == count &&
                 ints_ == std::vector<int64_t>(run.ints_, run.ints_ + plan.initial.size());
  if (inputs_.size() != count) inputs_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const View* view = run.inputs_[i].view;
    if (!view) continue;
    Input& input = inputs_[i];
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
  ints_.assign(run.ints_, run.ints_ + plan.initial.size());
  if (++runs_ <= kPlainRuns || !settled) return run.run_on_device();
  if (++recordings_ > kMostRecordings) {
    forget();
    hopeless_ = true;
    return run.run_on_device();
  }
  forget();
  if (record(plan, run)) return launch(run);
  hopeless_ = true;
  run.run_on_device();
}

bool Replay::fits(const Plan& plan, PlanRun& run) {
  if (!std::equal(recorded_ints_.begin(), recorded_ints_.end(), run.ints_)) return false;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const View* view = run.inputs_[i].view;
    if (view && !inputs_[i].place && !plan.host_inputs[i] && inputs_[i].recorded != view->data) return false;
  }
  return true;
}

void Replay::record_piece(PlanRun& run, const Piece& piece, cuda::Stream stream) {
  const cuda::Driver& d = cuda::driver();
  Recorded& recorded = pieces_.emplace_back();
  recorded.after = piece.after;
  constexpr int kRelaxed = 2;
  cuda::check(d.begin_capture(stream, kRelaxed), "recording a graph");
  cuda::recording = true;
  try {
    for (size_t k = 0; k < piece.instructions.size(); ++k) {
      run.run_on_device(*piece.instructions[k], &recorded.host_nodes);
      for (int32_t v : piece.done[k]) run.give_back(v);
    }
  } catch (...) {
    cuda::recording = false;
    cuda::Graph broken = nullptr;
    d.end_capture(stream, &broken);
    if (broken) d.graph_destroy(broken);
    throw;
  }
  cuda::recording = false;
  cuda::check(d.end_capture(stream, &recorded.graph), "recording a graph");
  cuda::fill_by_kernels(device_, recorded.graph);
  cuda::check(d.instantiate(&recorded.executable, recorded.graph, 0), "making a graph");
}

bool Replay::record(const Plan& plan, PlanRun& run) {
  const cuda::Driver& d = cuda::driver();
  cuda::activate(device_);
  cuda::reports(device_);
  static cuda::Stream streams[cuda::kMaxDevices];
  cuda::Stream& stream = streams[device_];
  constexpr unsigned kNonBlocking = 1;
  if (!stream) cuda::check(d.stream_create(&stream, kNonBlocking, 0), "making a stream");
  const cuda::Stream before = cuda::current_streams[device_];
  pool_ = cuda::new_pool();
  cuda::set_pool(pool_);
  cuda::current_streams[device_] = stream;
  const auto restore = [&] {
    cuda::current_streams[device_] = before;
    cuda::set_pool(0);
  };
  try {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      Input& input = inputs_[i];
      const View* view = run.inputs_[i].view;
      if (!view) continue;
      input.geometry.assign(view->shape, view->shape + view->ndim);
      input.geometry.insert(input.geometry.end(), view->strides, view->strides + view->ndim);
      input.recorded = view->data;
      if (!input.copied || plan.host_inputs[i]) continue;
      input.place = Ref<Storage>::adopt(Storage::allocate(span_bytes(*view), plan.device));
      input.recorded = input.place->data();
    }
    recorded_ints_ = ints_;
    // The values of inputs are looked up once, when first used: give the graph's.
    for (size_t v = 0; v < plan.values.size(); ++v) {
      const PlanValue& value = plan.values[v];
      if (value.kind == ValueKind::Input && run.inputs_[value.source].view && !value.on_host)
        run.data_[v] = inputs_[value.source].recorded;
    }
    noted_ = run.noted_ ? *run.noted_ : Noted();
    const size_t before_ints = noted_.leaves + noted_.numbers;  // a program need not take integers as inputs
    const bool dividable = run.noted_ && (inputs_.size() == before_ints || inputs_.size() == noted_.known.size());
    noted_ints_.clear();
    for (size_t i = before_ints; i < noted_.known.size(); ++i) noted_ints_.push_back(run.inputs_[i].integer);
    for (const Piece& piece : divide(plan, dividable ? &noted_ : nullptr)) record_piece(run, piece, stream);
  } catch (...) {  // something that cannot be recorded; the plain run will say if it is more than that
    PyErr_Clear();
    restore();
    run.forget_addresses();
    forget();
    return false;
  }
  restore();
  addresses_.resize(plan.values.size());
  for (size_t v = 0; v < plan.values.size(); ++v) addresses_[v] = run.recorded_address(static_cast<int32_t>(v));
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

void Replay::launch_piece(PlanRun& run, size_t number, cuda::Stream stream) {
  const cuda::Driver& d = cuda::driver();
  Recorded& piece = pieces_[number];
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
  cuda::check(d.graph_launch(piece.executable, stream), "launching a graph");
}

void Replay::launch(PlanRun& run) {
  const Plan& plan = run.plan_;
  cuda::activate(device_);
  const cuda::Stream stream = cuda::current_stream(device_);
  follow(stream);
  for (size_t i = owner_ ? copied_ : 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].place) continue;
    const View* view = run.inputs_[i].view;
    cuda::copy_on_device(device_, inputs_[i].recorded, view->data, span_bytes(*view));
  }
  for (size_t k = owner_ ? begun_ : 0; k < pieces_.size(); ++k) launch_piece(run, k, stream);
  owner_ = nullptr;
  begun_ = 0;
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
    cuda::copy_on_device(device_, run.data_[root], addresses_[root], bytes);
  };
  for (const Plan::Output& output : plan.outputs) copy_out(output.value);
  for (const SavedItem& item : plan.saved)
    if (item.from == SavedItem::From::Temporary) copy_out(item.index);
}

// -- ahead

int32_t Replay::first_ahead() const {
  const bool off = switches::get(switches::ahead) == 0;
  return off || pieces_.size() < 2 || profile::recording() ? INT32_MAX : pieces_.front().after;
}

bool Replay::give_up(const void* owner) {
  if (!owner_ || owner_ != owner) return false;
  owner_ = nullptr;
  return std::exchange(begun_, 0) > 0;
}

int32_t Replay::go_ahead(const Plan& plan, const void* owner, int32_t calls, const InputView* inputs) {
  if (owner_ && owner_ != owner) give_up(owner_);  // somebody else was faster, in another thread
  if (!owner_) {
    if (pieces_.size() < 2) return -1;
    owner_ = owner;
    begun_ = checked_ = copied_ = 0;
  }
  for (; checked_ < noted_.leaves && noted_.known[checked_] <= calls; ++checked_) {
    const View* view = inputs[checked_].view;
    const Input& input = inputs_[checked_];
    const auto dims = static_cast<size_t>(view->ndim);
    if (input.geometry.size() != 2 * dims || !std::equal(view->shape, view->shape + dims, input.geometry.begin()) ||
        !std::equal(view->strides, view->strides + dims, input.geometry.begin() + static_cast<int64_t>(dims)) ||
        (!input.place && !plan.host_inputs[checked_] && input.recorded != view->data)) {
      give_up(owner);
      return -1;
    }
  }
  const size_t before_ints = noted_.leaves + noted_.numbers;
  for (size_t k = 0; k < noted_ints_.size() && noted_.known[before_ints + k] <= calls; ++k)
    if (inputs[before_ints + k].integer != noted_ints_[k]) {
      give_up(owner);
      return -1;
    }
  cuda::activate(device_);
  const cuda::Stream stream = cuda::current_stream(device_);
  follow(stream);
  for (; copied_ < checked_; ++copied_)
    if (inputs_[copied_].place)
      cuda::copy_on_device(device_, inputs_[copied_].recorded, inputs[copied_].view->data,
                           span_bytes(*inputs[copied_].view));
  PlanRun run(plan, inputs);  // for the numbers alone
  std::copy(recorded_ints_.begin(), recorded_ints_.end(), run.ints_);
  for (; begun_ + 1 < pieces_.size() && pieces_[begun_].after <= calls; ++begun_) launch_piece(run, begun_, stream);
  return begun_ + 1 < pieces_.size() ? pieces_[begun_].after : INT32_MAX;
}

}  // namespace tandem
