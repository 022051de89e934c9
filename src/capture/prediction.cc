// Calls compared with those of the last time: see Note [Predicted calls].
#include "capture/prediction.h"

#include <algorithm>
#include <cstring>

#include "capture/capture.h"
#include "check.h"

namespace tandem {

namespace {

constexpr int kMostMisses = 4;  // in a row, before a prediction is given up

bool same_static(const PredictedArgument& expected, PyObject* o) {
  if (expected.is_fixed && expected.object == o) return true;
  Signature a, b;
  a.object(expected.object);
  b.object(o);
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

bool is_number(Argument::Kind kind) {
  using Kind = Argument::Kind;
  return kind == Kind::Float || kind == Kind::Complex || kind == Kind::Integer || kind == Kind::Bool ||
         kind == Kind::Seed || kind == Kind::Offset;
}

}  // namespace

Prediction::~Prediction() {
  for (PredictedCall& call : calls) Py_XDECREF(call.op);
  for (PredictedArgument& a : arguments)
    if (a.kind == Argument::Kind::Static) Py_XDECREF(a.object);
}

// -- comparing

bool Capture::matches_leaf(const PredictedSlot& expected, int32_t slot, const Tensor* t) {
  Storage* storage = t->storage;
  if (storage->pending() || storage->sharded() || storage->device() != expected.device) return false;
  if (expected.shares < 0) {
    if (storages_.find(storage)) return false;
    storages_[storage].leaf = slot;
  } else {
    const SlotState& first = slots_[expected.shares];
    if (first.storage != storage || t->view.data - first.data != expected.distance) return false;
  }
  if (prediction_->writes) {
    if (storage->borrowed() != expected.is_borrowed) return false;
    const auto overlaps = [&](int32_t other) {
      const Storage* known = slots_[other].storage;
      return known != storage && known->overlaps(*storage);
    };
    if (std::any_of(borrowed_slots_.begin(), borrowed_slots_.end(), overlaps)) return false;
    if (expected.is_borrowed) {
      for (int32_t other : prediction_->leaves) {
        if (other >= slot) break;
        if (overlaps(other)) return false;
      }
      borrowed_slots_.push_back(slot);
    }
  }
  hold(storage);
  slots_[slot] = {storage, t->view.data, storage->version()};
  return true;
}

bool Capture::matches(const PredictedArgument& expected, const Tensor* t) {
  const PredictedSlot& slot = prediction_->slots[expected.slot];
  if (t->requires_grad != expected.requires_grad || t->inference != expected.inference) return false;
  const bool stands_for_it = !aliases_.empty() && !expected.is_new && alias_of(t) == expected.slot;
  if (!stands_for_it && !slot.view.same_geometry(t->view)) return false;
  if (expected.is_new) {
    if (!matches_leaf(slot, expected.slot, t)) return false;
  } else if (!stands_for_it) {
    const SlotState& known = slots_[expected.slot];
    if (t->storage != known.storage || t->storage->version() != known.version || t->view.data != known.data)
      return false;
  }
  if (t->extra && t->extra->base) {
    // Its history has to be that of its base as it is now.
    if (expected.is_written) return false;
    if (t->extra->history_version != t->storage->version()) {
      if (reinterpret_cast<Tensor*>(t->extra->base)->requires_grad) return false;
      if (grad_mode.enabled) t->extra->history_version = t->storage->version();
    }
  }
  return !expected.is_written || (t->storage->writable() && expected.has_history == (t->history != nullptr));
}

bool Capture::matches(const PredictedCall& call, OpFunction* op, const Argument* arguments, int count) {
  const PredictedCall& next = (&call)[1];
  if (op != call.op || count != next.arguments - call.arguments || !(CallModes::now() == call.modes)) return false;
  const PredictedArgument* expected = prediction_->arguments.data() + call.arguments;
  for (int i = 0; i < count; ++i, ++expected) {
    const Argument& a = arguments[i];
    if (a.kind != expected->kind) return false;
    switch (a.kind) {
      case Argument::Kind::Tensor:
        if (!matches(*expected, a.tensor)) return false;
        break;
      case Argument::Kind::Static:
        if (!same_static(*expected, a.object)) return false;
        break;
      case Argument::Kind::Int:
      case Argument::Kind::Count:
        if (a.integer != expected->integer) return false;
        break;
      default:
        break;
    }
  }
  return true;
}

const PredictedCall* Capture::expected(OpFunction* op, Argument* arguments, int count) {
  if (!prediction_) return start_predicting(op, arguments, count);
  const size_t position = sources_.size();
  if (position < prediction_->num_calls()) {
    const PredictedCall& call = prediction_->calls[position];
    if (matches(call, op, arguments, count)) return &call;
  }
  stop_predicting();
  return nullptr;
}

const PredictedCall* Capture::start_predicting(OpFunction* op, Argument* arguments, int count) {
  is_undecided_ = false;
  if (record || programs_->watch || programs_->remote || anomaly_detection) return nullptr;
  if (static_cast<size_t>(segments) >= programs_->latest.size()) return nullptr;
  const std::shared_ptr<ProgramCache::Entry>& entry = programs_->latest[segments];
  if (!entry || entry->has_missed) return nullptr;
  for (const std::shared_ptr<Prediction>& prediction : entry->predictions) {
    if (prediction->calls[0].op != op || prediction->plans_cleared != PlanCache::num_cleared) continue;
    prediction_ = prediction;
    predicted_entry_ = entry;
    slots_.resize(prediction->slots.size());
    if (matches(prediction->calls[0], op, arguments, count)) return &prediction->calls[0];
    forget_predicted();
  }
  return nullptr;
}

void Capture::begin_predicted(const PredictedCall&, const Argument* arguments, int count) {
  sources_.push_back(user_source());
  for (int i = 0; i < count; ++i)
    if (is_number(arguments[i].kind)) numbers_.push_back(arguments[i]);
}

// -- writes through views

int32_t Capture::alias_of(const Tensor* t) const {
  for (size_t i = aliases_.size(); i-- > 0;) {
    const Alias& a = aliases_[i];
    if (a.storage == t->storage && a.version == t->storage->version() && same_view(a.view, t->view)) return a.slot;
  }
  return -1;
}

int32_t Capture::slot_of(const Tensor* t) const {
  if (const int32_t slot = alias_of(t); slot >= 0) return slot;
  for (int32_t slot = num_slots(); slot-- > 0;) {
    const SlotState& known = slots_[slot];
    if (known.storage == t->storage && known.version == t->storage->version() && known.data == t->view.data &&
        prediction_->slots[slot].view.same_geometry(t->view))
      return slot;
  }
  return -1;
}

bool Capture::is_predicted_deferred(const Tensor* t) const {
  if (t->extra && t->extra->base) return false;
  for (int32_t slot : prediction_->deferred) {
    if (slot >= num_slots()) break;
    if (slots_[slot].storage == t->storage)
      return slots_[slot].data == t->view.data && prediction_->slots[slot].view.same_geometry(t->view);
  }
  return false;
}

void Capture::remember_as(const Tensor* t, const Tensor* other) {
  if (prediction_) {
    if (const int32_t slot = slot_of(other); slot >= 0) {
      aliases_.push_back({t->storage, t->storage->version(), t->view, slot});
      return;
    }
    stop_predicting();
  }
  remember(t, *find(other));
}

void Capture::forget_predicted() {
  if (!prediction_) return;
  captured_before_ += static_cast<int64_t>(sources_.size());
  for (Source& source : sources_) Py_XDECREF(source.code);
  sources_.clear();
  held_.clear();
  borrowed_slots_.clear();
  aliases_.clear();
  storages_.clear();
  prediction_ = nullptr;
  predicted_entry_ = nullptr;
}

void Capture::stop_predicting() {
  if (!prediction_) return;
  const std::shared_ptr<Prediction> from = std::move(prediction_);
  const std::shared_ptr<ProgramCache::Entry> entry = std::move(predicted_entry_);
  if (++from->misses >= kMostMisses) std::erase(entry->predictions, from);
  entry->has_missed = true;
  storages_.clear();
  borrowed_slots_.clear();
  const size_t count = sources_.size();
  std::vector<Site> sites(from->slots.size());
  const auto address = [&](int32_t slot) { return from->slots[slot].view.at(slots_[slot].data); };
  const auto name = [&](int32_t slot, Site site) {
    sites[slot] = site;
    remember(slots_[slot].storage, slots_[slot].version, address(slot), site);
  };
  int32_t number = 0;
  for (size_t c = 0; c < count; ++c) {
    const PredictedCall &call = from->calls[c], &next = from->calls[c + 1];
    Call& captured = calls_.emplace_back();
    const auto known = static_cast<int32_t>(calls_.size());
    captured.plan = call.plan;
    captured.source = sources_[c];
    captured.recorded = call.recorded;
    captured.scope = call.modes.scope;
    for (int32_t i = call.arguments; i < next.arguments; ++i) {
      const PredictedArgument& a = from->arguments[i];
      Operand operand{Operand::Kind::None};
      if (a.kind == Argument::Kind::Tensor) {
        if (a.is_new) {
          name(a.slot, {Site::Kind::Leaf, static_cast<int32_t>(leaves_.size()), 0});
          note_leaf(slots_[a.slot].storage, address(a.slot), a.requires_grad, TensorRef());
        }
        const Site& site = sites[a.slot];
        operand = {site.kind == Site::Kind::Leaf ? Operand::Kind::Leaf : Operand::Kind::Result, site.index,
                   site.output};
      } else if (is_number(a.kind)) {
        operand = {Operand::Kind::Number, number++, 0};
        numbers_known_.push_back(known);
      } else if (a.kind == Argument::Kind::Int) {
        operand = {Operand::Kind::Int, static_cast<int32_t>(ints_.size()), 0};
        ints_.push_back(a.integer);
        ints_known_.push_back(known);
      }
      captured.operands.push_back(operand);
    }
    for (int32_t value : call.plan_values) captured.temporaries.push_back(value);
    const auto result = [&](const PredictedResult& made, int32_t output) {
      if (made.kind == PredictedResult::Kind::Same) return;
      const Site site{Site::Kind::Result, static_cast<int32_t>(c), output};
      Storage* storage = slots_[made.slot].storage;
      if (made.kind == PredictedResult::Kind::Fresh) {
        storages_[storage].deferred = static_cast<int32_t>(deferred_.size());
        deferred_.push_back({Ref<Storage>::share(storage), address(made.slot), site});
      } else if (made.kind == PredictedResult::Kind::Written) {
        note_write(storage, address(made.slot), site);
      }
      name(made.slot, site);
    };
    int32_t output = 0;
    for (int32_t i = call.results; i < next.results; ++i) result(from->results[i], output++);
    for (int32_t i = call.temporaries; i < next.temporaries; ++i) result(from->temporaries[i], output++);
  }
  for (const Alias& a : aliases_) remember(const_cast<Storage*>(a.storage), a.version, a.view, sites[a.slot]);
  aliases_.clear();
  for (const Storage* storage : replaced_) ++storages_[storage].replacements;
  if (count) {
    const std::vector<uint8_t>& key = entry->key;
    key_.assign(key.begin(), key.begin() + static_cast<std::ptrdiff_t>(from->calls[count - 1].key_end));
  }
  sources_.clear();
  held_.clear();
}

// -- running

bool Capture::run_predicted() {
  const std::shared_ptr<Prediction> held_on = prediction_;  // where the program fails it is let go
  const Prediction& prediction = *held_on;
  if (sources_.size() != prediction.num_calls()) return false;
  size_t held = 0;
  for (size_t i = 0; i < prediction.deferred.size(); ++i) {
    if (slots_[prediction.deferred[i]].storage->references() <= 1) continue;
    if (held == prediction.escaping.size() || prediction.escaping[held].deferred != static_cast<int32_t>(i))
      return false;
    ++held;
  }
  if (held != prediction.escaping.size()) return false;

  const std::shared_ptr<ProgramCache::Entry> entry = predicted_entry_;
  leaf_views_.resize(prediction.leaves.size());
  std::vector<InputView> inputs(prediction.leaves.size() + numbers_.size() + prediction.int_arguments.size());
  InputView* input = inputs.data();
  for (size_t i = 0; i < prediction.leaves.size(); ++i, ++input) {
    const int32_t slot = prediction.leaves[i];
    leaf_views_[i] = prediction.slots[slot].view.at(slots_[slot].data);
    input->view = &leaf_views_[i];
  }
  for (Argument& number : numbers_) (input++)->cell = reinterpret_cast<char*>(&number.integer);
  for (int64_t v : prediction.int_arguments) (input++)->integer = v;
  for (size_t k = 0; k < entry->programs.size(); ++k) {
    const Ref<Plan> program = entry->programs[k].plan;
    PlanRun run(*program, inputs.data());
    if (!run.guards_hold()) continue;
    if (k > 0) std::swap(entry->programs[k], entry->programs[0]);
    std::vector<Handed> escaping;
    escaping.reserve(prediction.escaping.size());
    for (const Prediction::Escaping& e : prediction.escaping) escaping.push_back({slots_[e.slot].storage, e.view});
    if (!run_program(entry->programs[0], run, escaping)) return false;
    ++entry->runs;
    note_segment(entry);
    held_on->misses = 0;
    programs_->learning[segments - 1].wasted = 0;  // this one has been counted
    ++programs_->num_predicted;
    const auto here = std::find(entry->predictions.begin(), entry->predictions.end(), held_on);
    if (here != entry->predictions.end()) std::iter_swap(entry->predictions.begin(), here);
    return true;
  }
  return false;
}

}  // namespace tandem
