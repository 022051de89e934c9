#include "plan/parts.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "check.h"
#include "device/cuda/copy_streams.h"
#include "device/cuda/memory.h"
#include "interpreter.h"
#include "library/registry.h"
#include "plan/plan.h"
#include "plan/region.h"
#include "profile/profile.h"
#include "tensor/device_copy.h"
#include "tensor/layout_class.h"
#include "tensor/pinned.h"

namespace tandem {

namespace {

size_t bytes_of(const View& v) {
  return static_cast<size_t>(v.numel()) * item_size(v.dtype);
}

bool is_dense(const View& v) {
  uint8_t order[kMaxDims];
  return classify(v, order) != LayoutClass::Strided;
}

void also_used_on(Storage* storage, cuda::Stream stream) {
  if (storage && storage->block()) cuda::record_stream(static_cast<cuda::Block*>(storage->block()), stream);
}

void copy_elements(int device, const View& from, const View& to) {
  if (device)
    cuda::copy_elements(device - 1, from, to);
  else
    library::find("copy")({&from, 1, &to, 1, nullptr, 0, nullptr, 0});
}

View row_major(View v) {
  int64_t step = 1;
  for (int i = v.ndim - 1; i >= 0; --i) {
    v.strides[i] = step;
    step *= v.shape[i];
  }
  return v;
}

}  // namespace

// -- copies

Ref<Storage> Transfers::dense_copy(const Place& from) {
  const size_t bytes = bytes_of(from.view);
  Ref<Storage> made = Ref<Storage>::adopt(from.device ? Storage::allocate(bytes, from.device) : allocate_pinned(bytes));
  View to = row_major(from.view);
  to.data = made->data();
  copy_elements(from.device, from.view, to);
  return made;
}

void Transfers::begin(const Place& from, const Place& to) {
  const size_t bytes = bytes_of(from.view);
  char* source = from.view.data;
  if (bytes == 0) return;
  if (from.device == 0 && to.device == 0) {
    std::memcpy(to.view.data, source, bytes);
  } else if (from.device == 0) {
    const int device = to.device - 1;
    const cuda::StreamScope scope(device, cuda::copy_stream(device, cuda::Direction::ToDevice));
    cuda::copy_to_device(device, to.view.data, source, bytes, false);
    if (from.storage) keep_until_done(device, from.storage);
    // Of inputs, and of memory that a loop around writes again in its next iteration.
    from_input_[device] = true;
    pending_.push_back({to.value, device, false});
  } else if (to.device == 0) {
    const int device = from.device - 1;
    const cuda::Stream compute = cuda::current_stream(device);
    const cuda::StreamScope scope(device, cuda::copy_stream(device, cuda::Direction::ToHost));
    cuda::follow_stream(device, compute);
    cuda::copy_to_host(device, to.view.data, source, bytes, false);
    also_used_on(from.storage, cuda::current_stream(device));
    from_input_there_[device] |= !from.storage;
    pending_.push_back({to.value, device, true});
  } else {
    cuda::copy_between(to.device - 1, to.view.data, from.device - 1, source, bytes);
  }
}

void Transfers::await_stream(int device, bool to_host) {
  std::erase_if(pending_, [&](const Pending& p) { return p.device == device && p.to_host == to_host; });
  if (!to_host) return cuda::follow_stream(device, cuda::copy_stream(device, cuda::Direction::ToDevice));
  const profile::Scope waiting(profile::Kind::Wait, "transfer");
  cuda::synchronize_stream(device, cuda::copy_stream(device, cuda::Direction::ToHost));
  from_input_there_[device] = false;
}

void Transfers::await(int32_t value) {
  const auto found = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& p) { return p.value == value; });
  if (found != pending_.end()) await_stream(found->device, found->to_host);
}

void Transfers::await_readers() {
  for (int i = 0; i < cuda::kMaxDevices; ++i) {
    if (std::exchange(from_input_[i], false))
      cuda::synchronize_stream(i, cuda::copy_stream(i, cuda::Direction::ToDevice));
    if (std::exchange(from_input_there_[i], false))
      cuda::follow_stream(i, cuda::copy_stream(i, cuda::Direction::ToHost));
  }
}

void Transfers::finish() {
  while (!pending_.empty()) await_stream(pending_.front().device, pending_.front().to_host);
  for (int i = 0; i < cuda::kMaxDevices; ++i)
    if (std::exchange(from_input_[i], false))
      cuda::synchronize_stream(i, cuda::copy_stream(i, cuda::Direction::ToDevice));
}

// -- runs

bool PlanRun::is_number(int32_t value) const {
  const PlanValue& v = plan_.values[value];
  return v.kind == ValueKind::Input && !inputs_[v.source].view;
}

void PlanRun::begin_transfer(const Instruction& in, Transfers& transfers) {
  const int32_t source = in.values[0], target = in.values[1];
  const int from_device = plan_.device_of(source), to_device = plan_.device_of(target);
  transfers.await(source);  // it may itself have been copied there
  Place from{source, view(source), from_device, storage_[source]};
  Ref<Storage> dense;
  if (!is_dense(from.view)) {
    dense = Transfers::dense_copy(from);
    from.view = row_major(from.view);
    from.view.data = dense->data();
    from.storage = dense.get();
  }
  if (to_device == 0) return transfers.begin(from, {target, view(target), 0, nullptr});
  const cuda::Stream compute = cuda::current_stream(to_device - 1);
  if (from_device == 0) {  // memory of the stream that copies: the copy need not wait for kernels
    cuda::activate(to_device - 1);
    const cuda::StreamScope scope(to_device - 1, cuda::copy_stream(to_device - 1, cuda::Direction::ToDevice));
    address(target);
  }
  const View to = view(target);
  also_used_on(storage_[target], compute);
  transfers.begin(from, {target, to, to_device, storage_[target]});
}

void PlanRun::take_result(int32_t value, const Plan& part, PlanRun& run, int32_t output) {
  int32_t root = output;
  while (part.values[root].kind == ValueKind::View) root = part.values[root].source;
  const View made = run.view(output), wanted = geometry(value);
  bool same = part.values[root].kind == ValueKind::Fresh;
  for (int i = 0; same && i < made.ndim; ++i) same = made.shape[i] <= 1 || made.strides[i] == wanted.strides[i];
  if (same) {
    Ref<Storage> storage = Ref<Storage>::adopt(run.share_storage(root));
    if (storage->data() == made.data) {
      run.forget_storage(root);
      data_[value] = storage->data();
      storage_[value] = storage.leak();
      return;
    }
  }
  const View own = view(value);
  copy_elements(part.device, made, own);
}

void PlanRun::run_part(const Instruction& in, Transfers& transfers) {
  const Plan& part = *in.region->plans[0];
  const std::vector<int32_t>& ints = in.region->ints[0];
  const auto tensors = static_cast<size_t>(in.num_inputs);
  std::vector<View> views(tensors);
  std::vector<InputView> inputs(tensors + ints.size());
  for (size_t i = 0; i < tensors; ++i) {
    const int32_t value = in.values[i];
    if (is_number(value)) {
      inputs[i].cell = address(value);
      continue;
    }
    transfers.await(value);
    views[i] = view(value);
    inputs[i].view = &views[i];
  }
  for (size_t i = 0; i < ints.size(); ++i) inputs[tensors + i].integer = slot(ints[i]);
  if (!part.written.empty() || part.first_write >= 0) transfers.await_readers();
  PlanRun run(part, inputs.data());
  TD_CHECK(run.guards_hold(), "a part of ", plan_.name, " does not accept its operands");
  try {
    run.execute();
  } catch (Error&) {
    part_wrote_ = run.wrote_inputs();
    throw;
  }
  for (size_t i = 0; i < part.outputs.size(); ++i)
    take_result(in.values[tensors + i], part, run, part.outputs[i].value);
}

void PlanRun::run_parts() {
  const Locked locked;  // devices are used with the GIL held; a loop around may have let it go
  Transfers transfers;
  const Instruction* current = nullptr;
  try {
    for (const Instruction& in : plan_.instructions) {
      current = &in;
      switch (in.kind) {
        case Instruction::Kind::Part:
          run_part(in, transfers);
          break;
        case Instruction::Kind::Transfer: {
          const profile::Scope timed(in.profiled(), in.label, in.origin.get());
          begin_transfer(in, transfers);
          break;
        }
        case Instruction::Kind::Free:
          for (int32_t value : in.values) give_back(value);
          break;
        default:
          TD_CHECK(false, "an instruction of one device among parts");
      }
    }
    transfers.finish();
  } catch (Error& error) {
    if (current && !error.origin) error.origin = current->origin;
    failed_ = current;
    throw;
  }
}

}  // namespace tandem
