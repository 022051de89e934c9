#include "dispatch/predicted.h"

#include <vector>

#include "check.h"
#include "dispatch/results.h"
#include "dispatch/tape.h"
#include "dispatch/writes.h"
#include "known_source.h"
#include "modes.h"
#include "tensor/generator.h"

namespace tandem::dispatching {

namespace {

// See Note [Early checks].
void check_early(const Plan& plan, Argument* arguments, int count) {
  std::vector<InputView> inputs(count);
  for (int i = 0; i < count; ++i) {
    if (arguments[i].kind == Argument::Kind::Tensor) {
      inputs[i].view = &arguments[i].tensor->view;
    } else {
      inputs[i].cell = reinterpret_cast<char*>(&arguments[i].integer);
      inputs[i].integer = arguments[i].integer;
    }
  }
  PlanRun run(plan, inputs.data());
  TD_CHECK(run.guards_hold());
  active_capture->check_early(run, arguments, count);
}

void advance(const Argument* arguments, int count, int64_t by) {
  for (int i = count - 1; i >= 0; --i)
    if (arguments[i].kind == Argument::Kind::Seed) {
      reinterpret_cast<Generator*>(arguments[i].object)->offset += static_cast<uint64_t>(by);
      return;
    }
}

Storage* defer_storage(Capture& capture, const PredictedSlot& expected, SlotState& slot) {
  Storage* storage = Storage::deferred(expected.bytes, expected.device);
  capture.hold(storage);
  slot = {storage, nullptr, 0};
  return storage;
}

TensorRef make_result(Capture& capture, const PredictedResult& result, Argument* arguments) {
  const PredictedSlot& expected = capture.prediction().slots[result.slot];
  SlotState& slot = capture.slot(result.slot);
  const SavedView& v = expected.view;
  switch (result.kind) {
    case PredictedResult::Kind::Fresh: {
      Storage* storage = defer_storage(capture, expected, slot);
      Tensor* t = new_tensor(storage, nullptr, v.dtype, v.ndim, v.shape(), v.strides());
      t->inference = grad_mode.inference;
      return TensorRef::adopt(t);
    }
    case PredictedResult::Kind::Written: {
      Tensor* t = arguments[result.argument].tensor;  // its version has been raised already
      capture.note_predicted_write(t->storage);
      slot = {t->storage, t->view.data, t->storage->version()};
      return TensorRef::share(t);
    }
    case PredictedResult::Kind::Same:
      slot = {nullptr, nullptr, 0};  // the argument's stands for it
      return TensorRef::share(arguments[result.argument].tensor);
    case PredictedResult::Kind::View: {
      Tensor* base = arguments[result.argument].tensor;
      char* data = base->view.data + result.offset;
      slot = {base->storage, data, base->storage->version()};
      TensorRef made = TensorRef::adopt(new_view(base, data, v.dtype, v.ndim, v.shape(), v.strides()));
      note_base(made.get(), base);
      return made;
    }
  }
  return TensorRef();
}

void make_temporary(Capture& capture, const PredictedResult& result, Argument* arguments) {
  SlotState& slot = capture.slot(result.slot);
  if (result.kind == PredictedResult::Kind::Fresh) {
    defer_storage(capture, capture.prediction().slots[result.slot], slot)->release();  // held by the capture
    return;
  }
  const Tensor* base = arguments[result.argument].tensor;
  slot = {base->storage, base->view.data + result.offset, base->storage->version()};
}

}  // namespace

TensorList make_predicted(const PredictedCall& call, Argument* arguments, int count, bool* returns_tuple) {
  Capture& capture = *active_capture;
  const Plan& plan = *call.plan;
  const PredictedCall& next = (&call)[1];
  if (plan.num_checks) check_early(plan, arguments, count);
  const KnownSource here;
  Ref<PlanNode> node;
  if (!plan.grad_inputs.empty()) node = begin_record(call.plan, arguments);
  if (plan.rng_advance >= 0) advance(arguments, count, call.advance);
  capture.begin_predicted(call, arguments, count);
  note_writes(arguments, call.op->writes);
  TensorList outputs;
  outputs.reserve(plan.outputs.size());
  const Prediction& prediction = capture.prediction();
  for (int32_t i = call.results; i < next.results; ++i)
    outputs.push_back(make_result(capture, prediction.results[i], arguments));
  for (int32_t i = call.temporaries; i < next.temporaries; ++i)
    make_temporary(capture, prediction.temporaries[i], arguments);
  if (node) finish_predicted_record(call, node.get(), capture, outputs);
  if (call.op->writes) set_written_histories(call.op, plan, node.get(), arguments);
  *returns_tuple = plan.returns_tuple;
  return outputs;
}

}  // namespace tandem::dispatching
