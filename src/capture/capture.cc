#include "capture/capture.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "check.h"
#include "library/registry.h"
#include "modes.h"
#include "operators/describe.h"
#include "profile/profile.h"
#include "tensor/deferred.h"
#include "tensor/device_copy.h"
#include "tensor/generator.h"

namespace tandem {

constinit thread_local Capture* active_capture = nullptr;

namespace {
bool is_dense(const View& v) {
  uint8_t order[kMaxDims];
  return classify(v, order) != LayoutClass::Strided;
}
}  // namespace

namespace {

std::vector<Capture*>& captures() {  // all there are; GIL
  static auto* list = new std::vector<Capture*>();
  return *list;
}

bool is_captured_elsewhere(const Storage* storage) {
  const std::thread::id here = std::this_thread::get_id();
  return std::any_of(captures().begin(), captures().end(),
                     [&](const Capture* c) { return c->thread != here && c->defers(storage); });
}

}  // namespace

Capture::Capture(ProgramCache* programs) : programs_(programs), is_undecided_(true) {
  captures().push_back(this);
}

Capture::Capture(std::string region) : region(std::move(region)) {
  captures().push_back(this);
}

Capture::~Capture() {
  std::erase(captures(), this);
  drop_guess();
  forget_predicted();
  forget_calls();
  forget_rebindings();
  track_deferred();
}

void Capture::forget_calls() {
  captured_before_ += static_cast<int64_t>(calls_.size());
  for (Call& call : calls_) Py_XDECREF(call.source.code);
  calls_.clear();
}

// -- naming tensors

bool same_view(const View& a, const View& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.ndim != b.ndim) return false;
  for (int i = 0; i < a.ndim; ++i)
    if (a.shape[i] != b.shape[i] || a.strides[i] != b.strides[i]) return false;
  return true;
}

static uint64_t hash_of(const Storage* storage, const View& view) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15ull;
  uint64_t h = reinterpret_cast<uintptr_t>(storage) * kOdd;
  const auto mix = [&](uint64_t v) {
    h = (h ^ v) * kOdd;
    h ^= h >> 29;
  };
  mix(reinterpret_cast<uintptr_t>(view.data));
  mix(static_cast<uint64_t>(view.ndim));
  for (int i = 0; i < view.ndim; ++i)
    mix(static_cast<uint64_t>(view.shape[i]) ^ static_cast<uint64_t>(view.strides[i]) << 32);
  return h;
}

const Capture::Site* Capture::find(const Tensor* t) const {
  const uint32_t version = t->storage->version();
  for (int32_t i = by_view_.first(hash_of(t->storage, t->view)); i >= 0; i = by_view_.after(i)) {
    const Known& k = known_[i];
    if (k.storage != t->storage || k.version != version || k.view.data != t->view.data ||
        !k.view.same_geometry(t->view))
      continue;
    // x and x.detach() from outside a body are the same memory, but not the same to gradients. A body's own inputs have
    // no memory: x.detach() of one is a call, and what backward has saved of one is the input itself.
    if (!region.empty() && k.site.kind == Site::Kind::Leaf && static_cast<size_t>(k.site.index) >= num_inputs_ &&
        leaves_[k.site.index].requires_grad != t->requires_grad)
      continue;
    return &k.site;
  }
  return nullptr;
}

void Capture::remember(Storage* storage, uint32_t version, const View& view, Site site) {
  by_view_.add(hash_of(storage, view));
  Known& k = known_.emplace_back();
  k.storage = storage;
  k.version = version;
  k.view = view;
  k.site = site;
}

void Capture::note_leaf(Storage* storage, const View& view, bool requires_grad, TensorRef tensor) {
  const auto index = static_cast<int32_t>(leaves_.size());
  StorageFacts& facts = storages_[storage];
  leaves_.push_back({Ref<Storage>::share(storage), view, requires_grad, std::move(tensor),
                     static_cast<int32_t>(calls_.size()), facts.leaf});
  facts.leaf = index;
  if (storage->borrowed()) borrowed_leaves_.push_back(index);
}

Capture::Operand Capture::resolve(Tensor* t, Signature& key) {
  const Site* site = find(t);
  Site found;
  if (site) {
    found = *site;
  } else {
    // New to us: memory that no call here has touched. (Whoever could be otherwise was flushed before; see dispatch.)
    TD_CHECK(!region.empty() || (!t->storage->pending() && !is_written(t->storage)),
             "a tensor of unknown origin in a capture");
    found = {Site::Kind::Leaf, static_cast<int32_t>(leaves_.size()), 0};
    remember(t, found);
    note_leaf(t->storage, t->view, t->requires_grad, region.empty() ? TensorRef() : TensorRef::share(t));
    key.byte('L');
    key.tensor(t, false);
  }
  return {found.kind == Site::Kind::Leaf ? Operand::Kind::Leaf : Operand::Kind::Result, found.index, found.output};
}

bool Capture::can_read(const Tensor* t) const {
  if (!region.empty()) return true;
  if (touches(t->storage)) return find(t);
  return !overlaps_written(t->storage) || find(t);
}

// Two storages may stand for the same memory where it is borrowed: two tensors made of one NumPy array.
bool Capture::overlaps_written(const Storage* storage) const {
  const auto overlaps = [&](const Write& write) { return leaves_[write.leaf].storage->overlaps(*storage); };
  if (storage->borrowed()) return std::any_of(writes_.begin(), writes_.end(), overlaps);
  return std::any_of(borrowed_writes_.begin(), borrowed_writes_.end(), [&](int32_t i) { return overlaps(writes_[i]); });
}

bool Capture::can_write(const Tensor* t) const {
  if (t->extra && t->extra->base) return false;  // a view: its base would have to be made again
  if (!is_dense(t->view)) return false;
  const StorageFacts* facts = storages_.find(t->storage);
  if (t->storage->pending())
    return facts && facts->deferred >= static_cast<int32_t>(num_inputs_) &&
           same_view(deferred_[facts->deferred].view, t->view);
  if (!region.empty()) return false;
  // Somebody may read this memory in another way: the program could not tell.
  for (int32_t i = facts ? facts->leaf : -1; i >= 0; i = leaves_[i].next)
    if (!same_view(leaves_[i].view, t->view)) return false;
  const auto overlaps = [&](const Leaf& leaf) {
    return leaf.storage.get() != t->storage && leaf.storage->overlaps(*t->storage);
  };
  if (t->storage->borrowed()) return std::none_of(leaves_.begin(), leaves_.end(), overlaps);
  for (int32_t i : borrowed_leaves_)
    if (overlaps(leaves_[i])) return false;
  return true;
}

bool Capture::replaces(const Tensor* view, const Tensor* base) const {
  if (!base->storage->pending() || !(prediction_ ? is_predicted_deferred(base) : can_write(base))) return false;
  if (!region.empty()) return true;
  // A program that ends costs some microseconds, giving the base anew a pass over it at worst; a loop that fills a base
  // bit by bit would give it anew each time.
  constexpr int32_t kMost = 8;
  constexpr int64_t kSmall = 1 << 16;
  const int64_t all = base->view.numel();
  const StorageFacts* facts = storages_.find(base->storage);  // null where calls are predicted
  return (facts ? facts->replacements : 0) < kMost && (all <= kSmall || 4 * view->view.numel() >= all);
}

void refuse_sharded(const Tensor* t) {
  fail(ErrorKind::Value, "the elements of this tensor ", format_shape(t->view.ndim, t->view.shape),
       " lie on several ranks, and this needs them in the memory of one",
       "\n  fix: use x.full_tensor() (all ranks must call it), or x.to_local() for this rank's part");
}

TensorRef gathered(const Tensor* tensor) {
  auto* t = const_cast<Tensor*>(tensor);
  if (!t->storage->sharded()) [[likely]]
    return TensorRef::share(t);
  PyObject* args[] = {reinterpret_cast<PyObject*>(t)};
  PyObject* whole = PyObject_Vectorcall(callbacks.gather, args, 1, nullptr);
  if (!whole) throw PythonError{};
  return TensorRef::adopt(reinterpret_cast<Tensor*>(whole));
}

void Capture::check_early(PlanRun& run, const Argument* arguments, int count) const {
  if (!region.empty() || run.device()) return;
  for (int i = 0; i < count; ++i) {
    if (arguments[i].kind != Argument::Kind::Tensor) continue;
    const Storage* storage = arguments[i].tensor->storage;
    if (!storage->pending() && !storage->sharded() && !is_written(storage)) run.check_input(i);
  }
}

// -- noting calls

Tensor* Capture::defer_result(DType dtype, int ndim, const int64_t* shape, const int64_t* strides, Site site,
                              int device) {
  View v;
  v.dtype = dtype;
  v.ndim = ndim;
  std::copy_n(shape, ndim, v.shape);
  std::copy_n(strides, ndim, v.strides);
  if (!is_dense(v)) {
    int64_t step = 1;
    for (int i = ndim - 1; i >= 0; --i) {
      v.strides[i] = step;
      step *= std::max<int64_t>(shape[i], 1);
    }
  }
  Storage* storage = Storage::deferred(checked_bytes(dtype, ndim, shape), device);
  storages_[storage].deferred = static_cast<int32_t>(deferred_.size());
  deferred_.push_back({Ref<Storage>::share(storage), v, site});
  Tensor* t = new_tensor(storage, nullptr, dtype, ndim, v.shape, v.strides);
  t->inference = grad_mode.inference;
  remember(t, site);
  return t;
}

int32_t Capture::begin(const Ref<Plan>& plan, Argument* arguments, int count) {
  if (calls_.empty()) {
    start_guess();
    start_learning();
  }
  if (learning_) learn_arguments(arguments, count);
  const size_t key_before = key_.size();
  const auto number = static_cast<int32_t>(calls_.size()) + 1;
  Signature key;
  key.value(plan.get());
  Call& call = calls_.emplace_back();  // captured for good: whatever fails from here on is a mistake of ours
  call.plan = plan;
  call.source = user_source();
  call.recorded = grad_mode.enabled;
  call.scope = device_scope;
  if (programs_ && programs_->remote) key.value(call.scope);
  for (int i = 0; i < count; ++i) {
    Argument& a = arguments[i];
    Operand operand{Operand::Kind::None};
    switch (a.kind) {
      case Argument::Kind::Tensor:
        operand = resolve(a.tensor, key);
        break;
      case Argument::Kind::Float:
      case Argument::Kind::Complex:
      case Argument::Kind::Integer:
      case Argument::Kind::Bool:
      case Argument::Kind::Seed:
      case Argument::Kind::Offset:
        operand = {Operand::Kind::Number, static_cast<int32_t>(numbers_.size()), 0};
        numbers_.push_back(a);
        numbers_known_.push_back(number);
        break;
      case Argument::Kind::Int:
        operand = {Operand::Kind::Int, static_cast<int32_t>(ints_.size()), 0};
        ints_.push_back(a.integer);
        ints_known_.push_back(number);
        break;
      default:
        break;  // statics and counts belong to the plan
    }
    key.byte(static_cast<uint8_t>(operand.kind));
    if (operand.kind == Operand::Kind::Leaf || operand.kind == Operand::Kind::Result) {
      key.value(operand.index);
      key.value(operand.output);
    } else if (operand.kind == Operand::Kind::Number) {
      key.byte(static_cast<uint8_t>(a.kind));
    }
    call.operands.push_back(operand);
  }
  if (!region.empty()) key.byte(call.recorded);
  key_.insert(key_.end(), key.data(), key.data() + key.size());
  if (next_ahead_ != INT_MAX) follow_guess(key_before);
  return number - 1;
}

// The operand itself may be known as the result of an operator that only looks at the leaf (x.reshape(-1) of a line).
int32_t Capture::leaf_of(const Storage* storage, const View& view) const {
  const StorageFacts* facts = storages_.find(storage);
  for (int32_t i = facts ? facts->leaf : -1; i >= 0; i = leaves_[i].next)
    if (same_view(leaves_[i].view, view)) return i;
  TD_CHECK(false, "a tensor that is written is no operand of the capture");
  return -1;
}

void Capture::note_write(Storage* storage, const View& view, Site site) {
  StorageFacts& facts = storages_[storage];
  if (storage->pending()) {
    deferred_[facts.deferred].value = site;
    return;
  }
  if (facts.write < 0) {
    facts.write = static_cast<int32_t>(writes_.size());
    if (storage->borrowed()) borrowed_writes_.push_back(facts.write);
    writes_.push_back({leaf_of(storage, view), site});
  }
  writes_[facts.write].value = site;
}

TensorRef Capture::output(int32_t call, int32_t index, PlanRun& run, Argument* arguments, bool mutates) {
  const Plan& plan = *calls_[call].plan;
  const Plan::Output& output = plan.outputs[index];
  Site site{Site::Kind::Result, call, index};
  if (mutates) {
    Tensor* t = arguments[index].tensor;  // its version has been raised already
    note_write(t->storage, t->view, site);
    remember(t, site);
    return TensorRef::share(t);
  }
  if (output.same_as_input >= 0) return TensorRef::share(arguments[output.same_as_input].tensor);
  if (output.view_of_input >= 0) {
    Tensor* base = arguments[output.view_of_input].tensor;
    View v = run.view(output.value);
    TensorRef made = TensorRef::adopt(new_view(base, v.data, v.dtype, v.ndim, v.shape, v.strides));
    remember(made.get(), site);
    return made;
  }
  const PlanValue& value = plan.values[output.value];
  int64_t shape[kMaxDims], strides[kMaxDims];
  for (size_t i = 0; i < value.shape.size(); ++i) {
    shape[i] = run.slot(value.shape[i]);
    strides[i] = run.slot(value.strides[i]);
  }
  return TensorRef::adopt(defer_result(value.dtype, static_cast<int>(value.shape.size()), shape, strides, site,
                                       plan.device_of(output.value)));
}

Capture::Temporary Capture::temporary(int32_t call, int32_t value_index, PlanRun& run, Argument* arguments) {
  Call& c = calls_[call];
  const Plan& plan = *c.plan;
  const PlanValue& value = plan.values[value_index];
  int32_t root = value_index;
  while (plan.values[root].kind == ValueKind::View) root = plan.values[root].source;
  if (plan.values[root].kind == ValueKind::Input) {
    Tensor* t = arguments[plan.values[root].source].tensor;
    t->storage->retain();
    Site site{Site::Kind::Result, call, static_cast<int32_t>(plan.outputs.size() + c.temporaries.size())};
    c.temporaries.push_back(value_index);
    View v = run.view(value_index);
    remember(t->storage, v, site);
    return {t->storage, v};
  }
  Site site{Site::Kind::Result, call, static_cast<int32_t>(plan.outputs.size() + c.temporaries.size())};
  c.temporaries.push_back(value_index);
  int64_t shape[kMaxDims], strides[kMaxDims];
  for (size_t i = 0; i < value.shape.size(); ++i) {
    shape[i] = run.slot(value.shape[i]);
    strides[i] = run.slot(value.strides[i]);
  }
  TensorRef made = TensorRef::adopt(defer_result(value.dtype, static_cast<int>(value.shape.size()), shape, strides,
                                                 site, plan.device_of(value_index)));
  made->storage->retain();
  return {made->storage, made->view};
}

// -- bodies

TensorRef Capture::input(DType dtype, int ndim, const int64_t* shape, bool requires_grad) {
  int64_t strides[kMaxDims];
  int64_t step = 1;
  for (int i = ndim - 1; i >= 0; --i) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  Site site{Site::Kind::Leaf, static_cast<int32_t>(leaves_.size()), 0};
  TensorRef t = TensorRef::adopt(defer_result(dtype, ndim, shape, strides, site, region_device));
  t->requires_grad = requires_grad;
  leaves_.push_back({Ref<Storage>::share(t->storage), t->view, requires_grad, t, 0, -1});
  ++num_inputs_;
  return t;
}

void Capture::locate(Tensor* t, int32_t site[3]) {
  Signature key;
  Operand found = resolve(t, key);
  key_.insert(key_.end(), key.data(), key.data() + key.size());
  site[0] = static_cast<int32_t>(found.kind);
  site[1] = found.index;
  site[2] = found.output;
}

PyObject* Capture::leaf_tensors() const {
  PyObject* list = PyList_New(0);
  for (const Leaf& leaf : leaves_) PyList_Append(list, leaf.tensor.object());
  return list;
}

bool Capture::defers(const Storage* storage) const {
  return std::any_of(deferred_.begin(), deferred_.end(),
                     [&](const DeferredTensor& p) { return p.storage.get() == storage; }) ||
         std::any_of(held_.begin(), held_.end(), [&](const Ref<Storage>& held) { return held.get() == storage; });
}

void await_deferred(const Storage* storage) {
  run_deferred(storage);
  if (!storage->pending()) return;
  using Clock = std::chrono::steady_clock;
  constexpr auto kPatience =
      std::chrono::seconds(60);  // the other thread may be waiting for us, at a lock of the user's
  const Clock::time_point start = Clock::now();
  while (is_captured_elsewhere(storage) && Clock::now() - start < kPatience) {
    if (active_capture && active_capture->region.empty()) active_capture->flush(Capture::End::Memory);
    Py_BEGIN_ALLOW_THREADS std::this_thread::sleep_for(std::chrono::microseconds(100));
    Py_END_ALLOW_THREADS if (PyErr_CheckSignals()) throw PythonError{};
  }
  if (!storage->pending()) return;
  fail(ErrorKind::Value,
       "a tensor without a value is used: it comes from a compiled function that failed or still runs in another "
       "thread, or from inside a function given to td.scan, td.cond or the like, which only describes what to do"
       "\n  fix: return what is needed from the function");
}

void Capture::refuse_read() const {
  fail(ErrorKind::Value,
       "the value of a tensor is read in a function compiled with replay=True: what follows from it would be replayed "
       "with other values too",
       "\n  fix: return the tensor and read it outside, choose by td.where or td.cond, or leave out replay=True");
}

void Capture::refuse(const char* what) const {
  fail(ErrorKind::Value, "a function given to td.", region, " ", what,
       ", but it is only traced here, to run many times later"
       "\n  fix: return what it computes; choose by td.cond or td.where, repeat by td.while_loop or td.scan");
}

void Capture::reset() {
  drop_guess();
  forget_predicted();
  forget_calls();
  leaves_.clear();
  numbers_.clear();
  ints_.clear();
  numbers_known_.clear();
  ints_known_.clear();
  deferred_.clear();
  writes_.clear();
  borrowed_leaves_.clear();
  borrowed_writes_.clear();
  known_.clear();
  by_view_.clear();
  storages_.clear();
  replaced_.clear();
  key_.clear();
  learning_ = nullptr;
  is_undecided_ = programs_ != nullptr;
  forget_rebindings();
}

}  // namespace tandem
