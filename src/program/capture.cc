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

void ProgramCache::clear() {
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
  forget_calls();
}

void Capture::forget_calls() {
  for (Call& call : calls_) Py_XDECREF(call.source.code);
  calls_.clear();
}

// -- naming tensors

uint64_t Capture::hash(const Storage* storage, uint32_t version, const View& v) {
  uint64_t h = reinterpret_cast<uintptr_t>(storage) ^ (uint64_t{version} << 48);
  auto mix = [&](uint64_t x) {
    h = (h ^ x) * 0x9E3779B97F4A7C15ull;
    h ^= h >> 31;
  };
  mix(reinterpret_cast<uintptr_t>(v.data));
  mix(static_cast<uint64_t>(v.dtype) << 8 | static_cast<uint64_t>(v.ndim));
  for (int i = 0; i < v.ndim; ++i) mix(static_cast<uint64_t>(v.shape[i]) * 31 + static_cast<uint64_t>(v.strides[i]));
  return h;
}

static bool same_view(const View& a, const View& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.ndim != b.ndim) return false;
  for (int i = 0; i < a.ndim; ++i)
    if (a.shape[i] != b.shape[i] || a.strides[i] != b.strides[i]) return false;
  return true;
}

const Capture::Site* Capture::find(const Tensor* t) const {
  uint32_t version = t->storage->version();
  auto [first, last] = by_hash_.equal_range(hash(t->storage, version, t->view));
  for (auto it = first; it != last; ++it) {
    const Known& k = known_[it->second];
    if (k.storage != t->storage || k.version != version || !same_view(k.view, t->view)) continue;
    // x and x.detach() from outside a body are the same memory, but not the same to gradients.
    if (!region.empty() && k.site.kind == Site::Kind::Leaf && leaves_[k.site.index].requires_grad != t->requires_grad)
      continue;
    return &k.site;
  }
  return nullptr;
}

void Capture::remember(Storage* storage, const View& view, Site site) {
  by_hash_.emplace(hash(storage, storage->version(), view), known_.size());
  known_.push_back({storage, storage->version(), view, site});
}

Capture::Operand Capture::resolve(Tensor* t, Signature& key) {
  const Site* site = find(t);
  Site found;
  if (site) {
    found = *site;
  } else {
    // New to us: memory that no call here has touched. (Whoever could be otherwise was flushed before; see dispatch.)
    TD_CHECK(!region.empty() || (!t->storage->pending() && !written_.count(t->storage)),
             "a tensor of unknown origin in a capture");
    found = {Site::Kind::Leaf, static_cast<int32_t>(leaves_.size()), 0};
    leaves_.push_back({Ref<Storage>::share(t->storage), t->view, t->requires_grad,
                       region.empty() ? TensorRef() : TensorRef::share(t)});
    remember(t, found);
    key.byte('L');
    key.tensor(t, false);
  }
  return {found.kind == Site::Kind::Leaf ? Operand::Kind::Leaf : Operand::Kind::Result, found.index, found.output};
}

bool Capture::can_read(const Tensor* t) const {
  if (!region.empty()) return true;
  return find(t) || (!t->storage->pending() && !written_.count(t->storage) && !overlaps_written(t->storage));
}

// Two storages may stand for the same memory where it is borrowed: two tensors made of one NumPy array.
bool Capture::overlaps_written(const Storage* storage) const {
  if (storage->borrowed()) {
    for (auto& [other, write] : written_)
      if (other->overlaps(*storage)) return true;
  } else {
    for (const Storage* other : borrowed_written_)
      if (other->overlaps(*storage)) return true;
  }
  return false;
}

bool Capture::can_write(const Tensor* t) const {
  if (t->extra && t->extra->base) return false;  // a view: its base would have to be made anew
  if (!is_dense(t->view)) return false;
  if (t->storage->pending()) {
    auto found = promise_of_.find(t->storage);
    return found != promise_of_.end() && found->second >= num_inputs_ &&
           same_view(promises_[found->second].view, t->view);
  }
  if (!region.empty()) return false;
  for (const Leaf& leaf : leaves_) {  // somebody reads this memory in another way: the program could not tell
    const Storage* other = leaf.storage.get();
    if (other == t->storage ? !same_view(leaf.view, t->view)
                            : (other->borrowed() || t->storage->borrowed()) && other->overlaps(*t->storage))
      return false;
  }
  return true;
}

void Capture::check_early(PlanRun& run, const Argument* arguments, int count) const {
  if (!region.empty() || run.device()) return;
  for (int i = 0; i < count; ++i) {
    if (arguments[i].kind != Argument::Kind::Tensor) continue;
    const Storage* storage = arguments[i].tensor->storage;
    if (!storage->pending() && !written_.count(const_cast<Storage*>(storage))) run.check_input(i);
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
  promise_of_[storage] = promises_.size();
  promises_.push_back({Ref<Storage>::share(storage), v, site});
  Tensor* t = new_tensor(storage, nullptr, dtype, ndim, v.shape, v.strides);
  t->inference = grad_mode.inference;
  remember(t, site);
  return t;
}

int32_t Capture::begin(const Ref<Plan>& plan, Argument* arguments, int count) {
  Signature key;
  key.value(plan.get());
  Call call{plan, {}, {}, user_source(), grad_mode.enabled};
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
        break;
      case Argument::Kind::Int:
        operand = {Operand::Kind::Int, static_cast<int32_t>(ints_.size()), 0};
        ints_.push_back(a.integer);
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
  calls_.push_back(std::move(call));
  return static_cast<int32_t>(calls_.size()) - 1;
}

// The operand itself may be known as the result of an operator that only looks at the leaf (x.reshape(-1) of a line).
int32_t Capture::leaf_of(const Tensor* t) const {
  for (size_t i = 0; i < leaves_.size(); ++i)
    if (leaves_[i].storage.get() == t->storage && same_view(leaves_[i].view, t->view)) return static_cast<int32_t>(i);
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
      promises_[promise_of_.at(t->storage)].value = site;
    } else {
      auto found = written_.find(t->storage);
      int32_t leaf = found != written_.end() ? found->second.first : leaf_of(t);
      if (found == written_.end() && t->storage->borrowed()) borrowed_written_.push_back(t->storage);
      written_[t->storage] = {leaf, site};
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
  leaves_.push_back({Ref<Storage>::share(t->storage), t->view, requires_grad, t});
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

std::vector<std::pair<int32_t, Capture::Site>> Capture::ordered_writes() const {
  std::vector<std::pair<int32_t, Site>> list;
  for (auto& [storage, write] : written_) list.push_back(write);
  std::sort(list.begin(), list.end(), [](auto& a, auto& b) { return a.first < b.first; });
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
  for (auto& [leaf, site] : ordered_writes()) {
    append(key, leaf);
    append(key, site.index);
    append(key, site.output);
  }

  std::vector<InputView> inputs(leaves_.size() + numbers_.size() + ints_.size());
  size_t at = 0;
  for (Leaf& leaf : leaves_) inputs[at++].view = &leaf.view;
  for (Argument& a : numbers_) inputs[at++].cell = reinterpret_cast<char*>(&a.integer);
  for (int64_t v : ints_) inputs[at++].integer = v;

  const std::shared_ptr<ProgramCache::Entry> found = programs_->find_or_insert(key);
  ProgramCache::Entry& entry = *found;
  if (entry.plans.empty())
    for (const Call& call : calls_) entry.plans.push_back(call.plan);
  ++entry.runs;
  ++segments;
  auto finish = [&](ProgramCache::Entry::Program& variant, PlanRun& run) {
    const Ref<Plan> program = variant.plan;
    ++variant.runs;
    prepare_plan(*program);
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

void Capture::reset() {
  forget_calls();
  leaves_.clear();
  numbers_.clear();
  ints_.clear();
  promises_.clear();
  promise_of_.clear();
  written_.clear();
  borrowed_written_.clear();
  known_.clear();
  by_hash_.clear();
  key_.clear();
}

}  // namespace tandem
