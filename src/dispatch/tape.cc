#include "dispatch/tape.h"

#include "capture/capture.h"
#include "check.h"
#include "modes.h"

namespace tandem::dispatching {

static SavedTensor save(Tensor* t, bool is_output, uint16_t output_index) {
  if (t->inference && !is_output)
    fail(
        ErrorKind::Autograd,
        "a tensor made in inference mode cannot be saved for backward\n  fix: clone() it outside inference mode first");
  SavedTensor saved;
  saved.storage = Ref<Storage>::share(t->storage);
  saved.view = t->view;
  saved.deferred = t->storage->pending();
  saved.unwatched = t->unwatched;
  saved.version = t->storage->version_for(t->unwatched);
  saved.is_output = is_output;
  saved.output_index = output_index;
  if (!is_output && t->requires_grad) {
    saved.requires_grad = true;
    saved.edge = gradient_edge(t);
  }
  return saved;
}

Ref<PlanNode> begin_record(const Ref<Plan>& plan, Argument* arguments) {
  auto node = Ref<PlanNode>::adopt(new PlanNode(plan));
  node->sequence = next_sequence();
  node->source = user_source();
  node->scope = device_scope;
  for (int32_t i : plan->grad_inputs) node->link(gradient_edge(arguments[i].tensor));
  for (const SavedItem& item : plan->saved)
    if (item.from == SavedItem::From::Input) {
      node->saved.push_back(save(arguments[item.index].tensor, false, 0));
    } else {
      SavedTensor& saved = node->saved.emplace_back();
      if (item.copy_of >= 0 && arguments[item.copy_of].tensor->requires_grad) {
        saved.requires_grad = true;
        saved.edge = gradient_edge(arguments[item.copy_of].tensor);
      }
    }
  for (int32_t i : plan->saved_numbers) {
    Argument number = arguments[i];
    if (number.kind == Argument::Kind::Seed || number.kind == Argument::Kind::Offset)
      number.kind = Argument::Kind::Integer;
    if (number.stream == Argument::Stream::None) number.object = nullptr;
    node->numbers.push_back(number);
  }
  return node;
}

static void save_output(const Plan& plan, PlanNode* node, size_t k, TensorList& outputs) {
  const SavedItem& item = plan.saved[k];
  node->saved[k] = save(outputs[item.index].get(), true, static_cast<uint16_t>(item.index));
  node->saved[k].requires_grad = plan.outputs[item.index].differentiable;
}

static void set_histories(const Plan& plan, PlanNode* node, TensorList& outputs) {
  node->num_outputs = static_cast<uint32_t>(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (plan.outputs[i].differentiable && plan.outputs[i].same_as_input < 0)
      set_history(outputs[i].get(), node, static_cast<uint32_t>(i));
  }
}

void finish_record(const Plan& plan, PlanNode* node, PlanRun& run, Argument* arguments, TensorList& outputs,
                   int32_t captured) {
  for (size_t k = 0; k < plan.saved.size(); ++k) {
    const SavedItem& item = plan.saved[k];
    if (item.from == SavedItem::From::Output) {
      save_output(plan, node, k, outputs);
    } else if (item.from == SavedItem::From::Temporary && captured >= 0) {
      Capture::Temporary made = active_capture->temporary(captured, item.index, run, arguments);
      node->saved[k].storage = Ref<Storage>::adopt(made.storage);
      node->saved[k].view = made.view;
      node->saved[k].deferred = made.storage->pending();
      node->saved[k].version = made.storage->version_for(false);
    } else if (item.from == SavedItem::From::Temporary) {
      int32_t root = item.index;
      while (plan.values[root].kind == ValueKind::View) root = plan.values[root].source;
      const PlanValue& owner = plan.values[root];  // an input, where a step passes its argument on (check_index)
      node->saved[k].storage = owner.kind == ValueKind::Input
                                   ? Ref<Storage>::share(arguments[owner.source].tensor->storage)
                                   : Ref<Storage>::adopt(run.share_storage(root));
      node->saved[k].view = run.view(item.index);
      node->saved[k].version = node->saved[k].storage->version_for(false);
    }
  }
  for (int32_t s : plan.saved_ints) node->ints.push_back(run.slot(s));
  set_histories(plan, node, outputs);
}

void finish_predicted_record(const PredictedCall& call, PlanNode* node, Capture& capture, TensorList& outputs) {
  const Plan& plan = *call.plan;
  const Prediction& prediction = capture.prediction();
  int32_t temporary = call.temporaries;
  for (size_t k = 0; k < plan.saved.size(); ++k) {
    if (plan.saved[k].from == SavedItem::From::Output) {
      save_output(plan, node, k, outputs);
    } else if (plan.saved[k].from == SavedItem::From::Temporary) {
      const int32_t slot = prediction.temporaries[temporary++].slot;
      const SlotState& made = capture.slot(slot);
      SavedTensor& saved = node->saved[k];
      saved.storage = Ref<Storage>::share(made.storage);
      saved.view.assign(prediction.slots[slot].view, made.data);
      saved.deferred = made.storage->pending();
      saved.version = made.storage->version_for(false);
    }
  }
  for (int32_t i = call.ints; i < (&call)[1].ints; ++i) node->ints.push_back(prediction.ints[i]);
  set_histories(plan, node, outputs);
}

}  // namespace tandem::dispatching
