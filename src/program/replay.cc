#include "program/replay.h"

#include <algorithm>
#include <cstring>

#include "check.h"
#include "device/cuda/device.h"
#include "device/cuda/launches.h"
#include "device/cuda/memory.h"
#include "dispatch/signature.h"
#include "program/plan.h"
#include "program/profile.h"
#include "program/region.h"

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
}

void Replay::forget() {
  if (executable_) cuda::driver().graph_exec_destroy(executable_);
  if (graph_) cuda::driver().graph_destroy(graph_);
  executable_ = nullptr;
  graph_ = nullptr;
  host_nodes_.clear();
  for (Input& input : inputs_) input.place = nullptr;
  if (pool_) cuda::release_pool(device_, pool_);
  pool_ = 0;
}

void Replay::run(const Plan& plan, PlanRun& run) {
  if (!hopeless_ && runs_ == 0) hopeless_ = !recordable(plan);
  if (hopeless_ || profile::recording() || launches_of_loops(plan, run) > kMostLaunches)
    return run.run_on_device(nullptr);
  const size_t count = plan.num_inputs;
  if (executable_ && fits(plan, run)) return launch(run);
  // Which inputs moved since the last run?
  bool settled = inputs_.size() == count && ints_ == std::vector<int64_t>(run.ints_, run.ints_ + plan.initial.size());
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
  if (++runs_ <= kPlainRuns || !settled) return run.run_on_device(nullptr);
  if (++recordings_ > kMostRecordings) {
    forget();
    hopeless_ = true;
    return run.run_on_device(nullptr);
  }
  forget();
  if (record(plan, run)) return launch(run);
  hopeless_ = true;
  run.run_on_device(nullptr);
}

bool Replay::fits(const Plan& plan, PlanRun& run) {
  if (!std::equal(ints_.begin(), ints_.end(), run.ints_)) return false;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const View* view = run.inputs_[i].view;
    if (view && !inputs_[i].copied && !plan.host_inputs[i] && inputs_[i].address != view->data) return false;
  }
  return true;
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
  bool begun = false;
  const auto restore = [&] {
    cuda::current_streams[device_] = before;
    cuda::set_pool(0);
  };
  try {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      Input& input = inputs_[i];
      const View* view = run.inputs_[i].view;
      if (!view || !input.copied || plan.host_inputs[i]) continue;
      input.place = Ref<Storage>::adopt(Storage::allocate(span_bytes(*view), plan.device));
      input.address = input.place->data();
    }
    constexpr int kRelaxed = 2;
    cuda::check(d.begin_capture(stream, kRelaxed), "recording a graph");
    begun = true;
    // The values of inputs are looked up once, when first used: give the graph's.
    for (size_t v = 0; v < plan.values.size(); ++v) {
      const PlanValue& value = plan.values[v];
      if (value.kind == ValueKind::Input && run.inputs_[value.source].view && !value.on_host)
        run.data_[v] = inputs_[value.source].address;
    }
    run.run_on_device(&host_nodes_);
    begun = false;
    cuda::check(d.end_capture(stream, &graph_), "recording a graph");
    cuda::check(d.instantiate(&executable_, graph_, 0), "making a graph");
  } catch (...) {  // something that cannot be recorded; the plain run will say if it is more than that
    PyErr_Clear();
    if (begun) {
      cuda::Graph broken = nullptr;
      d.end_capture(stream, &broken);
      if (broken) d.graph_destroy(broken);
    }
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

void Replay::launch(PlanRun& run) {
  const Plan& plan = run.plan_;
  const cuda::Driver& d = cuda::driver();
  cuda::activate(device_);
  const cuda::Stream stream = cuda::current_stream(device_);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].place) continue;
    const View* view = run.inputs_[i].view;
    cuda::copy_on_device(device_, inputs_[i].address, view->data, span_bytes(*view));
  }
  for (HostNode& node : host_nodes_) {
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
    cuda::check(d.graph_set_kernel(executable_, node.node, &p), "putting numbers into a graph");
  }
  cuda::note_launch("graph");
  cuda::check(d.graph_launch(executable_, stream), "launching a graph");
  // Results get memory of their own; what lies in the graph's is overwritten by the next launch.
  for (const Plan::Output& output : plan.outputs) {
    int32_t root = output.value;
    while (plan.values[root].kind == ValueKind::View) root = plan.values[root].source;
    const PlanValue& value = plan.values[root];
    if (value.kind != ValueKind::Fresh || run.storage_[root]) continue;
    size_t bytes = item_size(value.dtype);
    for (int32_t s : value.shape) bytes *= static_cast<size_t>(run.ints_[s]);
    run.storage_[root] = Storage::allocate(bytes, plan.device);
    run.data_[root] = run.storage_[root]->data();
    cuda::copy_on_device(device_, run.data_[root], addresses_[root], bytes);
  }
}

}  // namespace tandem
