// What was captured becomes a program, which runs: its description for Python, the programs that are kept, and flush.
#include <algorithm>
#include <cstring>

#include "capture/capture.h"
#include "check.h"
#include "known_source.h"
#include "library/registry.h"
#include "modes.h"
#include "operators/describe.h"
#include "places.h"
#include "profile/profile.h"
#include "tensor/deferred.h"
#include "tensor/device_copy.h"
#include "tensor/generator.h"

namespace tandem {

namespace {

constexpr size_t kMaxSizeVariants = 16;

template <typename T>
void append(std::vector<uint8_t>& bytes, T value) {
  const auto* p = reinterpret_cast<const uint8_t*>(&value);
  bytes.insert(bytes.end(), p, p + sizeof value);
}

// -- what Python is told

PyObject* site_tuple(int kind, int32_t index, int32_t output) {
  return Py_BuildValue("(iii)", kind, index, output);  // -> Operand
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
    // -> CallSpec
    PyObject* item = Py_BuildValue("(ONNOiOi)", call.plan->keep ? call.plan->keep : Py_None, operands, temporaries,
                                   code, line, call.recorded ? Py_True : Py_False, call.scope);
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

bool Capture::default_generator_only() const {
  return std::all_of(numbers_.begin(), numbers_.end(), [](const Argument& a) {
    return a.kind != Argument::Kind::Seed || reinterpret_cast<Generator*>(a.object) == default_generator();
  });
}

PyObject* Capture::describe_sites(const std::vector<Site>& wanted) const {
  PyObject* outputs = PyList_New(0);
  for (const Site& s : wanted) {
    PyObject* item = Py_BuildValue("(ii)", s.index, s.output);  // -> ResultSite
    PyList_Append(outputs, item);
    Py_DECREF(item);
  }
  return outputs;
}

PyObject* Capture::describe_writes() const {
  PyObject* writes = PyList_New(0);
  for (auto& [leaf, site] : ordered_writes()) {
    PyObject* item = Py_BuildValue("(iii)", leaf, site.index, site.output);  // -> WriteSite
    PyList_Append(writes, item);
    Py_DECREF(item);
  }
  return writes;
}

std::vector<Ref<Plan>> Capture::plans() const {
  std::vector<Ref<Plan>> list;
  for (const Call& call : calls_) list.push_back(call.plan);
  return list;
}

// -- programs

Ref<Plan> Capture::compile(const std::vector<Site>& wanted, bool symbolic, End end) {
  constexpr const char* kEnds[] = {"the function returns", "a value is read",
                                   "memory that was written is used through another view, or written through a view"};
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
  PyObject* outputs = describe_sites(wanted);
  PyObject* writes = describe_writes();
  PyObject* addresses = PyList_New(0);  // by which Python knows parameters and arguments again
  for (const Leaf& leaf : leaves_) {
    PyObject* item = PyLong_FromVoidPtr(leaf.storage->pending() ? nullptr : leaf.view.data);
    PyList_Append(addresses, item);
    Py_DECREF(item);
  }
  const profile::Scope compiling(profile::Kind::Compile, "program");
  const NotObserved alone(record != nullptr);
  const KeepTracingDepth keep;
  PyObject* result = PyObject_CallFunction(callbacks.compile_capture, "NNNNNNOsOLN", calls, leaves, numbers, ints,
                                           outputs, writes, symbolic ? Py_True : Py_False, ended.c_str(),
                                           programs_->report ? programs_->report : Py_None,
                                           static_cast<long long>(captured_before_), addresses);
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

PyObject* Capture::leaf_views() const {
  PyObject* tensors = PyList_New(0);
  for (const Leaf& leaf : leaves_) {
    leaf.storage->retain();
    const View& v = leaf.view;
    auto* t = reinterpret_cast<PyObject*>(new_tensor(leaf.storage.get(), v.data, v.dtype, v.ndim, v.shape, v.strides));
    PyList_Append(tensors, t);
    Py_DECREF(t);
  }
  return tensors;
}

void Capture::call_watch() {
  PyObject* done = PyObject_CallFunction(programs_->watch, "NNN", leaf_views(), describe_numbers(), describe_ints());
  if (!done) throw PythonError{};
  Py_DECREF(done);
}

void Capture::run_elsewhere(ProgramCache::Entry& entry, const std::vector<Site>& wanted,
                            const std::vector<size_t>& escaping) {
  const KeepTracingDepth keep;
  if (!entry.remote) {
    entry.remote = PyObject_CallFunction(programs_->remote, "NNNNNNL", describe_calls(), describe_leaves(),
                                         describe_numbers(), describe_ints(), describe_sites(wanted), describe_writes(),
                                         static_cast<long long>(captured_before_));
    if (!entry.remote) throw PythonError{};
  }
  PyObject* results = PyObject_CallFunction(entry.remote, "NNN", leaf_views(), describe_numbers(), describe_ints());
  if (!results) throw PythonError{};
  const std::unique_ptr<PyObject, decltype(&Py_DecRef)> held(results, &Py_DecRef);
  const std::vector<Write> writes = ordered_writes();
  TD_CHECK(
      PyList_Check(results) && PyList_GET_SIZE(results) == static_cast<Py_ssize_t>(escaping.size() + writes.size()),
      "a program that ran elsewhere gave another number of results");
  auto copy_into = [](PyObject* from, View to) {
    const View made = reinterpret_cast<Tensor*>(from)->view;
    TD_CHECK(made.dtype == to.dtype && made.ndim == to.ndim && std::equal(made.shape, made.shape + made.ndim, to.shape),
             "a program that ran elsewhere gave a result of another shape");
    library::Call copy{&made, 1, &to, 1, nullptr, 0, nullptr, 0};
    library::find("copy")(copy);
  };
  for (size_t k = 0; k < escaping.size(); ++k) {
    DeferredTensor& deferred = deferred_[escaping[k]];
    Ref<Storage> fresh = Ref<Storage>::adopt(Storage::allocate(deferred.storage->bytes(), 0));
    View expected = deferred.view;
    expected.data = fresh->data();
    copy_into(PyList_GET_ITEM(results, static_cast<Py_ssize_t>(k)), expected);
    deferred.storage->fulfil(*fresh);
  }
  for (size_t k = 0; k < writes.size(); ++k)
    copy_into(PyList_GET_ITEM(results, static_cast<Py_ssize_t>(escaping.size() + k)), leaves_[writes[k].leaf].view);
}

std::vector<Capture::Write> Capture::ordered_writes() const {
  std::vector<Write> list = writes_;
  std::sort(list.begin(), list.end(), [](const Write& a, const Write& b) { return a.leaf < b.leaf; });
  return list;
}

void Capture::fill_record(const Ref<Plan>& program, const std::vector<size_t>& escaping,
                          const std::vector<Write>& writes) {
  ++record->programs;
  record->program = program;
  record->leaves.clear();
  record->outputs.clear();
  record->written.clear();
  for (const Leaf& leaf : leaves_) record->leaves.push_back({leaf.storage, leaf.view});
  for (size_t i : escaping) record->outputs.push_back({deferred_[i].storage, deferred_[i].view});
  for (const Write& write : writes) record->written.push_back(write.leaf);
  record->numbers = numbers_;
  record->ints = ints_;
}

bool Capture::run_program(ProgramCache::Entry::Program& variant, PlanRun& run, const std::vector<Handed>& escaping) {
  const Ref<Plan> program = variant.plan;
  ++variant.runs;
  prepare_plan(*program);
  if (program.get() != guessed_.get()) drop_guess();
  const bool may_begin_early = program->is_program && (program->device || program->over_devices);  // Note [Ahead]
  const KnownInputs known = may_begin_early ? known_inputs() : KnownInputs();
  run.set_known_inputs(&known, this);
  try {
    run.execute();
  } catch (Error& error) {
    stop_predicting();
    const bool of_values =
        error.kind == ErrorKind::Index || error.kind == ErrorKind::LinAlg || error.kind == ErrorKind::Value;
    if (of_values && !program->device && !run.wrote_inputs()) return false;  // see Note [Early checks]
    // The same calls may come from other lines than when the program was made.
    // What knows its place may be of a program that ran before.
    if (error.origin && error.origin->call >= 0 && !place_of(error.origin)) error.origin = today(error.origin->call);
    throw;
  }
  std::vector<int32_t>
      handed_out;  // fresh memory that a deferred tensor has taken over; others with the same value get copies
  for (size_t k = 0; k < escaping.size(); ++k) {
    Storage* deferred = escaping[k].storage;
    View made = run.view(program->outputs[k].value);
    int32_t root = program->outputs[k].value;
    while (program->values[root].kind == ValueKind::View) root = program->values[root].source;
    View expected = escaping[k].view;
    expected.data = made.data;
    bool fresh_root = program->values[root].kind == ValueKind::Fresh;
    if (fresh_root && same_view(expected, made) &&
        std::find(handed_out.begin(), handed_out.end(), root) == handed_out.end()) {
      Ref<Storage> storage = Ref<Storage>::adopt(run.share_storage(root));
      if (storage->data() == made.data) {
        run.forget_storage(root);
        deferred->fulfil(*storage);
        handed_out.push_back(root);
        continue;
      }
    }
    const int device = deferred->device();
    Ref<Storage> fresh = Ref<Storage>::adopt(Storage::allocate(deferred->bytes(), device));
    expected.data = fresh->data();
    library::Call copy{&made, 1, &expected, 1, nullptr, 0, nullptr, 0};
    if (device)
      cuda::copy_elements(device - 1, made, expected);
    else
      library::find("copy")(copy);
    deferred->fulfil(*fresh);
  }
  return true;
}

void Capture::note_segment(const std::shared_ptr<ProgramCache::Entry>& entry) {
  constexpr int64_t kMostGuesses = 64;
  if (segments < kMostGuesses) {
    std::vector<std::shared_ptr<ProgramCache::Entry>>& latest = programs_->latest;
    if (latest.size() <= static_cast<size_t>(segments)) {
      latest.resize(segments + 1);
      programs_->learning.resize(segments + 1);
    }
    latest[segments] = entry;
  }
  ++segments;
}

void Capture::flush(End end) {
  if (!region.empty()) refuse("writes in place into a tensor that it has not made");
  if (calls_.empty() && sources_.empty()) return;
  if (record && end != End::Return)
    record->refuse("memory that was written is used through another view, or written through a view, at " +
                   format_source(KnownSource().get()));
  struct Suspend {  // what runs below is not to be captured
    Capture* saved = std::exchange(active_capture, nullptr);
    GradMode mode = grad_mode;
    ~Suspend() {
      active_capture = saved;
      grad_mode = mode;
    }
  } suspend;
  struct Reset {  // also when something fails: what was captured must not run a second time
    Capture& capture;
    ~Reset() { capture.reset(); }
  } reset{*this};
  struct Undo {
    Capture& capture;
    bool needed = true;
    ~Undo() {
      if (needed) capture.undo_rebindings();
    }
  } undo{*this};

  if (prediction_) {
    if (run_predicted()) {
      undo.needed = false;
      resolve_deferred();
      return;
    }
    stop_predicting();
  }
  std::vector<size_t> escaping;
  std::vector<Site> wanted;
  for (size_t i = 0; i < deferred_.size(); ++i) {
    if (deferred_[i].storage->references() <= 1) continue;
    escaping.push_back(i);
    wanted.push_back(deferred_[i].value);
  }
  std::vector<uint8_t>& key = key_;  // which keeps its memory for the next segment
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
  note_segment(found);
  if (programs_->remote) {
    run_elsewhere(entry, wanted, escaping);
    undo.needed = false;
    resolve_deferred();
    return;
  }
  std::vector<Handed> handed;
  handed.reserve(escaping.size());
  for (size_t i : escaping) handed.push_back({deferred_[i].storage.get(), deferred_[i].view});
  auto finish = [&](ProgramCache::Entry::Program& variant, PlanRun& run) {
    if (!run_program(variant, run, handed)) return false;
    if (guess_) entry.missed = 0;
    if (record) fill_record(variant.plan, escaping, writes);
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
        programs_->tell(entry.programs.back().number, "drop");
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
  if (!done) {
    if (record) record->refuse("its operators had to run as the fallback");
    run_fallback(escaping);
  } else {
    finish_learning(entry, escaping);
  }
  undo.needed = false;
  resolve_deferred();
}

std::vector<InputView> Capture::inputs_so_far(size_t leaves, size_t numbers) {
  std::vector<InputView> inputs(leaves + numbers + ints_.size());
  for (size_t i = 0; i < leaves_.size(); ++i) inputs[i].view = &leaves_[i].view;
  for (size_t i = 0; i < numbers_.size(); ++i) inputs[leaves + i].cell = reinterpret_cast<char*>(&numbers_[i].integer);
  for (size_t i = 0; i < ints_.size(); ++i) inputs[leaves + numbers + i].integer = ints_[i];
  return inputs;
}

KnownInputs Capture::known_inputs() const {
  KnownInputs known;
  known.leaves = leaves_.size();
  known.numbers = numbers_.size();
  for (const Leaf& leaf : leaves_) known.calls.push_back(leaf.known);
  known.calls.insert(known.calls.end(), numbers_known_.begin(), numbers_known_.end());
  known.calls.insert(known.calls.end(), ints_known_.begin(), ints_known_.end());
  return known;
}

}  // namespace tandem
