#include "program/capture.h"

#include <algorithm>
#include <cstring>

#include "autograd/mode.h"
#include "check.h"
#include "device/cuda/copy.h"
#include "dispatch/describe.h"
#include "library/registry.h"
#include "program/profile.h"
#include "tensor/generator.h"
#include "tensor/promised.h"

namespace tandem {

thread_local Capture* active_capture = nullptr;

namespace {
constexpr size_t kMaxSizeVariants = 16;
constexpr size_t kMaxSequences = 512;  // of operators, per function; a function that makes more starts over

template <typename T>
void append(std::vector<uint8_t>& bytes, T value) {
  const auto* p = reinterpret_cast<const uint8_t*>(&value);
  bytes.insert(bytes.end(), p, p + sizeof value);
}

bool is_dense(const View& v) {
  uint8_t order[kMaxDims];
  return classify(v, order) != LayoutClass::Strided;
}
}  // namespace

std::shared_ptr<ProgramCache::Entry> ProgramCache::find_or_insert(const std::vector<uint8_t>& key) {
  uint64_t h = 1469598103934665603ull;
  size_t i = 0;
  for (; i + 8 <= key.size(); i += 8) {
    uint64_t v;
    std::memcpy(&v, key.data() + i, 8);
    h = (h ^ v) * 0x9E3779B97F4A7C15ull;
    h ^= h >> 29;
  }
  for (; i < key.size(); ++i) h = (h ^ key[i]) * 1099511628211ull;
  auto [first, last] = index_.equal_range(h);
  for (auto it = first; it != last; ++it)
    if (entries[it->second]->key == key) return entries[it->second];
  if (entries.size() >= kMaxSequences) clear();
  entries.push_back(std::make_shared<Entry>());
  entries.back()->key = key;
  index_.emplace(h, entries.size() - 1);
  return entries.back();
}

ProgramCache::ProgramCache() = default;

ProgramCache::~ProgramCache() {
  Py_XDECREF(report);
  Py_XDECREF(watch);
}

void ProgramCache::clear() {
  latest.clear();
  if (report && !entries.empty()) {
    PyObject* done = PyObject_CallMethod(report, "start_over", nullptr);
    if (!done) PyErr_Clear();
    Py_XDECREF(done);
  }
  entries.clear();
  index_.clear();
}

void ProgramCache::tell_dropped(int64_t number) {
  if (!report) return;
  PyObject* done = PyObject_CallMethod(report, "drop", "L", static_cast<long long>(number));
  if (!done) PyErr_Clear();
  Py_XDECREF(done);
}

Capture::~Capture() {
  drop_guess();
  forget_calls();
}

void Capture::forget_calls() {
  for (Call& call : calls_) Py_XDECREF(call.source.code);
  calls_.clear();
}

// -- naming tensors

static bool same_view(const View& a, const View& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.ndim != b.ndim) return false;
  for (int i = 0; i < a.ndim; ++i)
    if (a.shape[i] != b.shape[i] || a.strides[i] != b.strides[i]) return false;
  return true;
}

static bool same_view(const SavedView& a, const View& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.ndim != b.ndim) return false;
  const int64_t *shape = a.shape(), *strides = a.strides();
  for (int i = 0; i < a.ndim; ++i)
    if (shape[i] != b.shape[i] || strides[i] != b.strides[i]) return false;
  return true;
}

const Capture::Site* Capture::find(const Tensor* t) const {
  const StorageFacts* facts = storages_.find(t->storage);
  if (!facts) return nullptr;
  const uint32_t version = t->storage->version();
  for (int32_t i = facts->known; i >= 0; i = known_[i].next) {
    const Known& k = known_[i];
    if (k.version != version || !same_view(k.view, t->view)) continue;
    // x and x.detach() from outside a body are the same memory, but not the same to gradients.
    if (!region.empty() && k.site.kind == Site::Kind::Leaf && leaves_[k.site.index].requires_grad != t->requires_grad)
      continue;
    return &k.site;
  }
  return nullptr;
}

void Capture::remember(Storage* storage, const View& view, Site site) {
  StorageFacts& facts = storages_[storage];
  Known& k = known_.emplace_back();
  k.next = facts.known;
  k.version = storage->version();
  k.view = view;
  k.site = site;
  facts.known = static_cast<int32_t>(known_.size()) - 1;
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
    StorageFacts& facts = storages_[t->storage];
    leaves_.push_back({Ref<Storage>::share(t->storage), t->view, t->requires_grad,
                       region.empty() ? TensorRef() : TensorRef::share(t), static_cast<int32_t>(calls_.size()),
                       facts.leaf});
    facts.leaf = found.index;
    if (t->storage->borrowed()) borrowed_leaves_.push_back(found.index);
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
  if (t->extra && t->extra->base) return false;  // a view: its base would have to be made anew
  if (!is_dense(t->view)) return false;
  const StorageFacts* facts = storages_.find(t->storage);
  if (t->storage->pending())
    return facts && facts->promise >= static_cast<int32_t>(num_inputs_) &&
           same_view(promises_[facts->promise].view, t->view);
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

void Capture::check_early(PlanRun& run, const Argument* arguments, int count) const {
  if (!region.empty() || run.device()) return;
  for (int i = 0; i < count; ++i) {
    if (arguments[i].kind != Argument::Kind::Tensor) continue;
    const Storage* storage = arguments[i].tensor->storage;
    if (!storage->pending() && !is_written(storage)) run.check_input(i);
  }
}

// -- noting calls

Tensor* Capture::promise(DType dtype, int ndim, const int64_t* shape, const int64_t* strides, Site site) {
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
  const int device = site.kind == Site::Kind::Result ? calls_[site.index].plan->device : region_device;
  Storage* storage = Storage::promise(checked_bytes(dtype, ndim, shape), device);
  storages_[storage].promise = static_cast<int32_t>(promises_.size());
  promises_.push_back({Ref<Storage>::share(storage), v, site});
  Tensor* t = new_tensor(storage, nullptr, dtype, ndim, v.shape, v.strides);
  t->inference = grad_mode.inference;
  remember(t, site);
  return t;
}

int32_t Capture::begin(const Ref<Plan>& plan, Argument* arguments, int count) {
  if (calls_.empty()) start_guess();
  const size_t key_before = key_.size();
  const auto number = static_cast<int32_t>(calls_.size()) + 1;
  Signature key;
  key.value(plan.get());
  Call& call = calls_.emplace_back();  // noted for good: whatever fails from here on is a mistake of ours
  call.plan = plan;
  call.source = user_source();
  call.recorded = grad_mode.enabled;
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
int32_t Capture::leaf_of(const Tensor* t) const {
  const StorageFacts* facts = storages_.find(t->storage);
  for (int32_t i = facts ? facts->leaf : -1; i >= 0; i = leaves_[i].next)
    if (same_view(leaves_[i].view, t->view)) return i;
  TD_CHECK(false, "a tensor that is written is no operand of the capture");
  return -1;
}

TensorRef Capture::output(int32_t call, int32_t index, PlanRun& run, Argument* arguments, bool mutates) {
  const Plan& plan = *calls_[call].plan;
  const Plan::Output& output = plan.outputs[index];
  Site site{Site::Kind::Result, call, index};
  if (mutates) {
    Tensor* t = arguments[index].tensor;  // its version has been raised already
    if (t->storage->pending()) {
      promises_[storages_.find(t->storage)->promise].value = site;
    } else {
      StorageFacts& facts = storages_[t->storage];
      if (facts.write < 0) {
        facts.write = static_cast<int32_t>(writes_.size());
        if (t->storage->borrowed()) borrowed_writes_.push_back(facts.write);
        writes_.push_back({leaf_of(t), site});
      }
      writes_[facts.write].value = site;
    }
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
  return TensorRef::adopt(promise(value.dtype, static_cast<int>(value.shape.size()), shape, strides, site));
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
  TensorRef made = TensorRef::adopt(promise(value.dtype, static_cast<int>(value.shape.size()), shape, strides, site));
  made->storage->retain();
  return {made->storage, made->view};
}

// -- running

namespace {

PyObject* site_tuple(int kind, int32_t index, int32_t output) {
  return Py_BuildValue("(iii)", kind, index, output);
}

}  // namespace

PyObject* Capture::describe_calls() const {
  PyObject* calls = PyList_New(0);
  for (const Call& call : calls_) {
    PyObject* operands = PyList_New(0);
    for (const Operand& o : call.operands) {
      PyObject* item = site_tuple(static_cast<int>(o.kind), o.index, o.output);
      PyList_Append(operands, item);
      Py_DECREF(item);
    }
    PyObject* temporaries = PyList_New(0);
    for (int32_t v : call.temporaries) {
      PyObject* item = PyLong_FromLong(v);
      PyList_Append(temporaries, item);
      Py_DECREF(item);
    }
    PyObject* code = call.source.code ? call.source.code : Py_None;
    int line = call.source.code
                   ? PyCode_Addr2Line(reinterpret_cast<PyCodeObject*>(call.source.code), call.source.instruction)
                   : 0;
    PyObject* item = Py_BuildValue("(ONNOiO)", call.plan->keep ? call.plan->keep : Py_None, operands, temporaries, code,
                                   line, call.recorded ? Py_True : Py_False);
    PyList_Append(calls, item);
    Py_DECREF(item);
  }
  return calls;
}

PyObject* Capture::describe_leaves() const {
  PyObject* leaves = PyList_New(0);
  for (const Leaf& leaf : leaves_) {
    PyObject* item = describe_view(leaf.view, leaf.requires_grad, leaf.storage->device());
    PyList_Append(leaves, item);
    Py_DECREF(item);
  }
  return leaves;
}

PyObject* Capture::describe_numbers() const {
  PyObject* numbers = PyList_New(0);
  for (const Argument& a : numbers_) {
    PyObject* item = describe_argument(a);
    PyList_Append(numbers, item);
    Py_DECREF(item);
  }
  return numbers;
}

PyObject* Capture::describe_ints() const {
  PyObject* ints = PyList_New(0);
  for (int64_t v : ints_) {
    PyObject* item = PyLong_FromLongLong(v);
    PyList_Append(ints, item);
    Py_DECREF(item);
  }
  return ints;
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
  TensorRef t = TensorRef::adopt(promise(dtype, ndim, shape, strides, site));
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

PyObject* Capture::generators() const {
  PyObject* list = PyList_New(0);
  for (size_t i = 0; i < numbers_.size(); ++i) {
    if (numbers_[i].kind != Argument::Kind::Seed) continue;
    bool is_default = reinterpret_cast<Generator*>(numbers_[i].object) == default_generator();
    PyObject* item = Py_BuildValue("(nO)", static_cast<Py_ssize_t>(i), is_default ? Py_True : Py_False);
    PyList_Append(list, item);
    Py_DECREF(item);
  }
  return list;
}

std::vector<Ref<Plan>> Capture::plans() const {
  std::vector<Ref<Plan>> list;
  for (const Call& call : calls_) list.push_back(call.plan);
  return list;
}

void refuse_promise() {
  fail(ErrorKind::Value,
       "a tensor without a value is used: it comes from a compiled function that failed or still runs in another "
       "thread, or from inside a function given to td.scan, td.cond or the like, which only describes what to do"
       "\n  fix: return what is needed from the function");
}

void Capture::refuse(const char* what) const {
  fail(ErrorKind::Value, "a function given to td.", region, " ", what,
       ", but it is only taken down here, to run many times later"
       "\n  fix: return what it computes; choose by td.cond or td.where, repeat by td.while_loop or td.scan");
}

Ref<Plan> Capture::compile(const std::vector<Site>& wanted, bool symbolic, End end) {
  constexpr const char* kEnds[] = {"the function returns", "a value is read",
                                   "memory that was written is used through another view, or written through a view",
                                   "the next operator runs on another device"};
  std::string ended = kEnds[static_cast<int>(end)];
  if (end != End::Return) {
    const Source here = user_source();
    const std::string place = format_source(here);
    if (!place.empty()) ended += " at " + place;
    Py_XDECREF(here.code);
  }
  PyObject* calls = describe_calls();
  PyObject* leaves = describe_leaves();
  PyObject* numbers = describe_numbers();
  PyObject* ints = describe_ints();
  PyObject* outputs = PyList_New(0);
  for (const Site& s : wanted) {
    PyObject* item = Py_BuildValue("(ii)", s.index, s.output);
    PyList_Append(outputs, item);
    Py_DECREF(item);
  }
  PyObject* writes = PyList_New(0);
  for (auto& [leaf, site] : ordered_writes()) {
    PyObject* item = Py_BuildValue("(iii)", leaf, site.index, site.output);
    PyList_Append(writes, item);
    Py_DECREF(item);
  }
  const profile::Scope compiling(profile::Kind::Compile, "program");
  PyObject* result = PyObject_CallFunction(callbacks.compile_capture, "NNNNNNOsO", calls, leaves, numbers, ints,
                                           outputs, writes, symbolic ? Py_True : Py_False, ended.c_str(),
                                           programs_->report ? programs_->report : Py_None);
  if (!result) throw PythonError{};
  if (result == Py_None) {
    Py_DECREF(result);
    return Ref<Plan>();
  }
  Ref<Plan> plan = plan_from_python(result);
  Py_DECREF(result);
  if (!plan) throw PythonError{};
  return plan;
}

void Capture::call_watch() {
  PyObject* tensors = PyList_New(0);
  for (const Leaf& leaf : leaves_) {
    leaf.storage->retain();
    const View& v = leaf.view;
    auto* t = reinterpret_cast<PyObject*>(new_tensor(leaf.storage.get(), v.data, v.dtype, v.ndim, v.shape, v.strides));
    PyList_Append(tensors, t);
    Py_DECREF(t);
  }
  PyObject* done = PyObject_CallFunction(programs_->watch, "NNN", tensors, describe_numbers(), describe_ints());
  if (!done) throw PythonError{};
  Py_DECREF(done);
}

std::vector<Capture::Write> Capture::ordered_writes() const {
  std::vector<Write> list = writes_;
  std::sort(list.begin(), list.end(), [](const Write& a, const Write& b) { return a.leaf < b.leaf; });
  return list;
}

void Capture::flush(End end) {
  if (!region.empty()) refuse("writes in place into a tensor that it has not made");
  if (calls_.empty()) return;
  struct Suspend {  // what runs below is not to be captured
    Capture* saved = std::exchange(active_capture, nullptr);
    GradMode mode = grad_mode;
    ~Suspend() {
      active_capture = saved;
      grad_mode = mode;
    }
  } suspend;
  struct Reset {  // also when something fails: what was noted must not run a second time
    Capture& capture;
    ~Reset() { capture.reset(); }
  } reset{*this};

  std::vector<size_t> escaping;
  std::vector<Site> wanted;
  for (size_t i = 0; i < promises_.size(); ++i) {
    if (promises_[i].storage->references() <= 1) continue;
    escaping.push_back(i);
    wanted.push_back(promises_[i].value);
  }
  std::vector<uint8_t> key = std::move(key_);
  for (const Site& s : wanted) {
    append(key, s.index);
    append(key, s.output);
  }
  append(key, int32_t{-1});
  const std::vector<Write> writes = ordered_writes();
  for (auto& [leaf, site] : writes) {
    append(key, leaf);
    append(key, site.index);
    append(key, site.output);
  }

  std::vector<InputView> inputs = inputs_so_far(leaves_.size(), numbers_.size());
  const std::shared_ptr<ProgramCache::Entry> found = programs_->find_or_insert(key);
  ProgramCache::Entry& entry = *found;
  if (entry.plans.empty())
    for (const Call& call : calls_) entry.plans.push_back(call.plan);
  ++entry.runs;
  constexpr int64_t kMostGuesses = 64;
  if (segments < kMostGuesses) {
    std::vector<std::shared_ptr<ProgramCache::Entry>>& latest = programs_->latest;
    if (latest.size() <= static_cast<size_t>(segments)) latest.resize(segments + 1);
    latest[segments] = found;
  }
  ++segments;
  auto finish = [&](ProgramCache::Entry::Program& variant, PlanRun& run) {
    const Ref<Plan> program = variant.plan;
    ++variant.runs;
    prepare_plan(*program);
    if (program.get() != guessed_.get()) drop_guess();
    const Noted noted = program->is_program ? when_noted() : Noted();
    run.set_noted(&noted, this);
    try {
      run.execute();
    } catch (Error& error) {
      const bool of_values =
          error.kind == ErrorKind::Index || error.kind == ErrorKind::LinAlg || error.kind == ErrorKind::Value;
      if (of_values && !program->device && !run.wrote_inputs()) return false;  // see Note [Early checks]
      // The same calls may come from other lines than when the program was made.
      if (error.origin && error.origin->call >= 0) error.origin = today(error.origin->call);
      throw;
    }
    if (guess_) entry.missed = 0;
    std::vector<int32_t>
        handed_out;  // fresh memory that a promise has taken over; others with the same value get copies
    for (size_t k = 0; k < escaping.size(); ++k) {
      Promise& promise = promises_[escaping[k]];
      View made = run.view(program->outputs[k].value);
      int32_t root = program->outputs[k].value;
      while (program->values[root].kind == ValueKind::View) root = program->values[root].source;
      View expected = promise.view;
      expected.data = made.data;
      bool fresh_root = program->values[root].kind == ValueKind::Fresh;
      if (fresh_root && same_view(expected, made) &&
          std::find(handed_out.begin(), handed_out.end(), root) == handed_out.end()) {
        Ref<Storage> storage = Ref<Storage>::adopt(run.share_storage(root));
        if (storage->data() == made.data) {
          run.forget_storage(root);
          promise.storage->fulfil(*storage);
          handed_out.push_back(root);
          continue;
        }
      }
      Ref<Storage> fresh = Ref<Storage>::adopt(Storage::allocate(promise.storage->bytes(), program->device));
      expected.data = fresh->data();
      library::Call copy{&made, 1, &expected, 1, nullptr, 0, nullptr, 0};
      if (program->device)
        cuda::copy_elements(program->device - 1, made, expected);
      else
        library::find("copy")(copy);
      promise.storage->fulfil(*fresh);
    }
    return true;
  };
  bool done = false, failed = false;
  for (size_t k = 0; !done && !failed && k < entry.programs.size(); ++k) {
    Ref<Plan> program = entry.programs[k].plan;
    PlanRun run(*program, inputs.data());
    if (!run.guards_hold()) continue;
    if (k > 0) std::swap(entry.programs[k], entry.programs[k - 1]);
    done = finish(entry.programs[k > 0 ? k - 1 : 0], run);
    failed = !done;
  }
  if (!done && !failed && !entry.broken) {
    // The first program is made for the very sizes it met; when others come, one that computes with sizes serves them
    // all.
    Ref<Plan> program = compile(wanted, !entry.programs.empty(), end);
    if (program) {
      if (entry.programs.size() >= kMaxSizeVariants) {
        programs_->tell_dropped(entry.programs.back().number);
        entry.programs.pop_back();
      }
      entry.programs.insert(entry.programs.begin(), {program, programs_->num_reported() - 1});
      PlanRun run(*program, inputs.data());
      TD_CHECK(run.guards_hold(), "a new program does not accept the call it was made for");
      if (programs_->watch) call_watch();
      done = finish(entry.programs.front(), run);
    } else {
      entry.broken = true;
    }
  }
  if (!done) run_one_by_one(escaping);
  resolve_promises();
}

std::vector<InputView> Capture::inputs_so_far(size_t leaves, size_t numbers) {
  std::vector<InputView> inputs(leaves + numbers + ints_.size());
  for (size_t i = 0; i < leaves_.size(); ++i) inputs[i].view = &leaves_[i].view;
  for (size_t i = 0; i < numbers_.size(); ++i) inputs[leaves + i].cell = reinterpret_cast<char*>(&numbers_[i].integer);
  for (size_t i = 0; i < ints_.size(); ++i) inputs[leaves + numbers + i].integer = ints_[i];
  return inputs;
}

Noted Capture::when_noted() const {
  Noted noted;
  noted.leaves = leaves_.size();
  noted.numbers = numbers_.size();
  for (const Leaf& leaf : leaves_) noted.known.push_back(leaf.known);
  noted.known.insert(noted.known.end(), numbers_known_.begin(), numbers_known_.end());
  noted.known.insert(noted.known.end(), ints_known_.begin(), ints_known_.end());
  return noted;
}

void Capture::reset() {
  drop_guess();
  forget_calls();
  leaves_.clear();
  numbers_.clear();
  ints_.clear();
  numbers_known_.clear();
  ints_known_.clear();
  promises_.clear();
  writes_.clear();
  borrowed_leaves_.clear();
  borrowed_writes_.clear();
  known_.clear();
  storages_.clear();
  key_.clear();
}

}  // namespace tandem
