// The eager path: signature -> plan -> run -> record.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>

#include "autobatch/batch.h"
#include "capture/capture.h"
#include "check.h"
#include "dispatch/constants.h"
#include "dispatch/joins.h"
#include "dispatch/plans.h"
#include "dispatch/predicted.h"
#include "dispatch/results.h"
#include "dispatch/sharded.h"
#include "dispatch/tape.h"
#include "dispatch/view_writes.h"
#include "dispatch/writes.h"
#include "known_source.h"
#include "modes.h"
#include "operators/op_function.h"
#include "operators/promotion.h"
#include "tensor/generator.h"

namespace tandem {

using namespace dispatching;

static void advance(Generator* generator, const Plan& plan, PlanRun& run) {
  if (generator && plan.rng_advance >= 0) generator->offset += static_cast<uint64_t>(run.slot(plan.rng_advance));
}

// See Note [Unwritten plans] in plan/plan.h.
static void begin_again(Plan& plan, PlanRun& run, const InputView* inputs) {
  prepare_plan(plan);
  std::destroy_at(&run);
  std::construct_at(&run, plan, inputs);
  TD_CHECK(run.guards_hold());
}

void reread_views(Capture* capture, const Argument* arguments, int count) {
  for (int i = 0; i < count; ++i)
    if (arguments[i].kind == Argument::Kind::Tensor && arguments[i].tensor->extra)
      reread_view(capture, arguments[i].tensor);
}

// What a capture cannot note down happens on real memory, and so does whatever reads deferred tensors outside of one.
Capture* suspend_capture_if_needed(OpFunction* op, Argument* arguments, int count) {
  Capture* capture = active_capture;
  bool fits = true;
  for (int i = 0; i < count && fits; ++i) {
    if (arguments[i].kind != Argument::Kind::Tensor) continue;
    if (arguments[i].tensor->extra) reread_view(capture, arguments[i].tensor);
    fits = capture->can_read(arguments[i].tensor);
  }
  auto writable = [&] {
    for (int k = 0; k < op->writes && k < count; ++k)
      if (arguments[k].kind == Argument::Kind::Tensor && !capture->can_write(arguments[k].tensor)) return false;
    return true;
  };
  if (fits && writable()) return nullptr;
  capture->flush(Capture::End::Memory);
  for (int i = 0; i < count; ++i)
    if (arguments[i].kind == Argument::Kind::Tensor && arguments[i].tensor->storage->pending())
      await_deferred(arguments[i].tensor->storage);
  if (writable()) return nullptr;
  active_capture = nullptr;
  return capture;
}

TensorList dispatch(OpFunction* op, Argument* arguments, int count, bool* returns_tuple) {
  const PromotionRule promotion(arguments, count);
  std::vector<TensorRef> clones;
  if (active_capture) {
    if (active_capture->predicts()) {
      if (op->writes && writes_deferred_view(op, arguments, count))
        return write_deferred_view(op, arguments, count, returns_tuple);
      if (active_capture->has_replaced()) [[unlikely]]
        reread_views(active_capture, arguments, count);
    }
    if (op->writes && active_capture->expects(callbacks.clone))
      for (int k = 0; k < op->writes; ++k) prepare_write(arguments, count, k, op->writes, clones);
    if (const PredictedCall* call = active_capture->expect(op, arguments, count))
      return make_predicted(*call, arguments, count, returns_tuple);
  }
  if (active_batch && !active_capture) [[unlikely]] {
    TensorList results;
    if (active_batch->predict(op, arguments, count, results, returns_tuple)) return results;
    if (active_batch->join(op, arguments, count, results, returns_tuple)) return results;
  }
  if (any_sharded(arguments, count) && !describes_body()) [[unlikely]]
    return dispatch_sharded(op, arguments, count, returns_tuple);
  if (op->joins != Joins::No && !active_capture && joins_many(op, arguments, count)) [[unlikely]]
    return join_many(op, arguments, count, returns_tuple);
  struct Resume {
    Capture* capture = nullptr;
    ~Resume() {
      if (capture) active_capture = capture;
    }
  } resume;
  if (active_capture) [[unlikely]] {
    if (op->writes && writes_deferred_view(op, arguments, count))
      return write_deferred_view(op, arguments, count, returns_tuple);
    resume.capture = suspend_capture_if_needed(op, arguments, count);
  }
  Batch* batch = active_capture ? nullptr : active_batch;
  bool defers_write = false;
  if (batch && op->writes) [[unlikely]] {
    defers_write =
        op->writes == 1 && arguments[0].kind == Argument::Kind::Tensor && batch->can_write(arguments[0].tensor);
    if (!defers_write) {
      batch->run_all();
      batch = nullptr;
    }
  }
  const bool apart = op->writes > kManyWrites && all_apart(arguments, count);
  for (int k = 0; k < op->writes && !defers_write; ++k)
    prepare_write(arguments, apart ? 0 : count, k, op->writes, clones);
  // A clone that was only captured reads the memory that this call writes, in another way: it has to be made first.
  if (active_capture && !clones.empty()) [[unlikely]]
    resume.capture = suspend_capture_if_needed(op, arguments, count);

  constexpr int kInline = 16;
  alignas(InputView) std::byte inline_inputs[kInline * sizeof(InputView)];  // filling all of it would be felt
  std::unique_ptr<InputView[]> many_inputs;
  auto* inputs = reinterpret_cast<InputView*>(inline_inputs);
  if (count > kInline) {
    many_inputs.reset(new InputView[count]);
    inputs = many_inputs.get();
  } else {
    std::uninitialized_value_construct_n(inputs, count);
  }
  Generator* generator = nullptr;
  for (int i = 0; i < count; ++i) {
    Argument& a = arguments[i];
    if (a.kind == Argument::Kind::Tensor) {
      if (a.tensor->storage->pending() && !active_capture && !(batch && a.tensor->storage->batch() == batch))
          [[unlikely]]
        await_deferred(a.tensor->storage);
      if (a.tensor->extra && a.tensor->extra->base) refresh_view(a.tensor);
      inputs[i].view = &a.tensor->view;
    } else {
      if (a.kind == Argument::Kind::Seed) generator = reinterpret_cast<Generator*>(a.object);
      inputs[i].cell = reinterpret_cast<char*>(&a.integer);
      inputs[i].integer = a.integer;
    }
  }

  Signature signature;
  encode(arguments, count, signature);
  uint64_t hash = signature.hash();
  CacheEntry* entry = op->cache->find(hash, signature);

  auto finish = [&](const Ref<Plan>& plan, PlanRun& run) {
    if (plan->unwritten && !active_capture) [[unlikely]]
      begin_again(*plan, run, inputs);
    if (batch) [[unlikely]] {
      const Batch::Fate fate = batch->fate(op, *plan, arguments, count);
      if (fate != Batch::Fate::Now) {
        *returns_tuple = plan->returns_tuple;
        if (fate == Batch::Fate::Defer) {
          advance(generator, *plan, run);
          return batch->defer(op, plan, run, arguments, count);
        }
        TensorList views;
        if (make_views(batch, *plan, run, arguments, views)) return views;
      } else {
        for (int i = 0; i < count; ++i)
          if (arguments[i].kind == Argument::Kind::Tensor) batch->run(arguments[i].tensor->storage);
      }
    }
    if (active_capture && plan->num_checks) [[unlikely]]
      active_capture->check_early(run, arguments, count);
    std::optional<KnownSource> here;  // a call that is captured asks for it up to three times
    if (active_capture) here.emplace();
    Ref<PlanNode> node;
    if (!plan->grad_inputs.empty()) node = begin_record(plan, arguments);
    advance(generator, *plan, run);  // before the GIL may be let go, so that no two calls share numbers
    int32_t captured = active_capture ? active_capture->begin(plan, arguments, count) : -1;
    note_writes(arguments, op->writes);
    TensorList outputs;
    outputs.reserve(plan->outputs.size());
    if (captured >= 0) [[unlikely]] {
      for (int k = 0; k < static_cast<int>(plan->outputs.size()); ++k) {
        outputs.push_back(active_capture->output(captured, k, run, arguments, k < op->writes));
        int32_t base = k < op->writes ? -1 : plan->outputs[k].view_of_input;
        if (base >= 0) note_base(outputs[k].get(), arguments[base].tensor);
      }
    } else {
      if (plan->kernels) [[unlikely]]
        prepare_plan(*plan);
      std::shared_ptr<Constants> constants;
      if (has_constants(op, *plan, arguments, count)) [[unlikely]] {
        constants = constants_of(*plan, op->constants, arguments, count);
        run.set_loop(&constants->state);
      }
      run.execute();
      for (const Plan::Output& output : plan->outputs) outputs.push_back(make_output(*plan, output, run, arguments));
    }
    if (node) finish_record(*plan, node.get(), run, arguments, outputs, captured);
    if (captured >= 0) active_capture->learn(op, arguments, run, outputs, captured);
    here.reset();
    set_written_histories(op, *plan, node.get(), arguments);
    *returns_tuple = plan->returns_tuple;
    if (anomaly_detection) [[unlikely]]
      check_outputs(op, outputs);
    return outputs;
  };

  if (entry) {
    for (size_t k = 0; k < entry->variants.size(); ++k) {
      Ref<Plan> plan = entry->variants[k];
      PlanRun run(*plan, inputs);
      if (!run.guards_hold()) continue;
      if (k > 0) std::swap(entry->variants[k], entry->variants[k - 1]);
      return finish(plan, run);
    }
  }
  Ref<Plan> plan = compile_for(op, arguments, count, signature, hash, inputs);
  PlanRun run(*plan, inputs);
  TD_CHECK(run.guards_hold());
  return finish(plan, run);
}

Ref<Plan> find_plan(OpFunction* op, Argument* arguments, int count, bool prepared) {
  const PromotionRule promotion(arguments, count);
  std::vector<InputView> inputs(count);
  for (int i = 0; i < count; ++i) {
    Argument& a = arguments[i];
    if (a.kind == Argument::Kind::Tensor) {
      inputs[i].view = &a.tensor->view;
    } else {
      inputs[i].cell = reinterpret_cast<char*>(&a.integer);
      inputs[i].integer = a.integer;
    }
  }
  Signature signature;
  encode(arguments, count, signature);
  uint64_t hash = signature.hash();
  Ref<Plan> found;
  if (CacheEntry* entry = op->cache->find(hash, signature))
    for (const Ref<Plan>& plan : entry->variants)
      if (PlanRun(*plan, inputs.data()).guards_hold()) {
        found = plan;
        break;
      }
  if (!found) found = compile_for(op, arguments, count, signature, hash, inputs.data());
  if (prepared) prepare_plan(*found);
  return found;
}

}  // namespace tandem
