#include "capture/call_replay.h"

#include <algorithm>

#include "autograd/record.h"
#include "capture/capture.h"
#include "check.h"
#include "library/registry.h"
#include "tensor/default_dtype.h"
#include "tensor/device_copy.h"

namespace tandem {

Modes Modes::now() {
  return {grad_mode, call_mode, device_scope, default_float, anomaly_detection, rank_in_process, default_generator()};
}

bool Modes::operator==(const Modes& o) const {
  return grad.enabled == o.grad.enabled && grad.inference == o.grad.inference && call.device == o.call.device &&
         call.autocast == o.call.autocast && scope == o.scope && floats == o.floats && anomaly == o.anomaly &&
         rank == o.rank && generator == o.generator;
}

// -- where tensors come from

static bool has_attributes(const Tensor* t) {
  return t->attributes && PyDict_GET_SIZE(t->attributes) > 0;
}

void TensorSources::add(From from, int32_t index, PyObject* object, PyObject* key, Tensor* t) {
  Source& s = sources.emplace_back();
  s.from = from;
  s.index = index;
  s.object = object;  // Python holds on to them until all is finished
  s.key = key;
  s.type = Py_TYPE(t);
  owned.own(reinterpret_cast<PyObject*>(s.type));
  s.view = t->view;
  s.device = t->storage->device();
  s.requires_grad = t->requires_grad;
  s.inference = t->inference;
  s.has_grad = t->extra && t->extra->grad;
  s.storage = Ref<Storage>::share(t->storage);
  const int32_t before = find(t->storage);
  s.first = before;
  s.has_attributes = has_attributes(t);
  s.object_before = t;
  s.same_object = sources[before].object_before == t;
  s.distance = t->view.data - sources[before].view.data;
}

int32_t TensorSources::find(const Storage* storage) const {
  for (size_t i = 0; i < sources.size(); ++i)
    if (sources[i].storage.get() == storage) return static_cast<int32_t>(i);
  return -1;
}

// -- making one

CallReplay::CallReplay(CallRecord& record, TensorSources& sources)
    : program_(record.program),
      numbers_(record.numbers),
      ints_(record.ints),
      written_(record.written),
      sources_(sources) {
  for (const CallRecord::Memory& output : record.outputs) outputs_.push_back(output.view);
}

std::string CallReplay::bind_leaves(const CallRecord& record) {
  if (!(sources_.modes == Modes::now())) return "it changes a mode (grad_enabled, the default dtype, or the like)";
  for (size_t i = 0; i < record.leaves.size(); ++i) {
    const CallRecord::Memory& leaf = record.leaves[i];
    const bool writes = std::find(written_.begin(), written_.end(), static_cast<int32_t>(i)) != written_.end();
    const int32_t first = sources_.find(leaf.storage.get());
    if (writes && leaf.storage->borrowed()) return "it writes memory that belongs to another library (a NumPy array)";
    if (first < 0) {
      if (writes) return "it writes a tensor that it makes at every call from Python values (td.tensor, td.asarray)";
      if (leaf.storage->borrowed()) return "it reads memory that belongs to another library (a NumPy array)";
      leaves_.push_back({-1, 0, false, leaf.view, leaf.storage});
      continue;
    }
    LeafBinding binding{first, leaf.view.data - sources_.sources[first].view.data, false, leaf.view, {}};
    for (size_t k = static_cast<size_t>(first); k < sources_.sources.size(); ++k) {
      const TensorSources::Source& source = sources_.sources[k];
      if (source.storage.get() != leaf.storage.get() || !same_view(source.view, leaf.view)) continue;
      binding.source = static_cast<int32_t>(k);
      binding.whole = true;
      break;
    }
    leaves_.push_back(std::move(binding));
  }
  return "";
}

std::string CallReplay::bind_streams(const CallRecord& record) {
  for (const CallRecord::Stream& start : record.streams) {
    StreamUse use{start.generator, start.generator->offset - start.offset, {}, {}};
    if (start.generator->seed != start.seed || start.generator->offset < start.offset)
      return "it seeds a generator of random numbers";
    streams_.push_back(std::move(use));
  }
  for (size_t i = 0; i < numbers_.size(); ++i) {
    if (numbers_[i].stream == Argument::Stream::None) continue;
    const auto* generator = reinterpret_cast<Generator*>(numbers_[i].object);
    size_t k = 0;
    while (k < record.streams.size() && record.streams[k].generator != generator) ++k;
    if (k == record.streams.size()) return "it makes a generator of random numbers, or takes one that was not found";
    const CallRecord::Stream& start = record.streams[k];
    const auto value = static_cast<uint64_t>(numbers_[i].integer);
    if (numbers_[i].stream == Argument::Stream::Offset)
      streams_[k].offsets.emplace_back(i, value - start.offset);
    else if (value == start.seed)
      streams_[k].seeds.push_back(i);
    else
      return "it seeds a generator of random numbers";
  }
  return "";
}

// -- running it

bool CallReplay::take(const ArgumentShape& shape, PyObject* given, Tensors& tensors) {
  const auto of_size = [&](Py_ssize_t n) {
    return n == static_cast<Py_ssize_t>(shape.items.size()) || refuse("an argument has another number of items");
  };
  switch (shape.kind) {
    case ArgumentShape::Kind::Tensor:
      if (!is_tensor(given)) return refuse("an argument is no tensor any more");
      tensors.push_back(reinterpret_cast<Tensor*>(given));
      return true;
    case ArgumentShape::Kind::Value:
      return same_value(given, shape.expected) || refuse("an argument has another value");
    case ArgumentShape::Kind::Object:
      return given == shape.expected || refuse("an argument is another object");
    case ArgumentShape::Kind::Tuple:
      if (!PyTuple_CheckExact(given)) return refuse("an argument has another type");
      if (!of_size(PyTuple_GET_SIZE(given))) return false;
      for (size_t i = 0; i < shape.items.size(); ++i)
        if (!take(shape.items[i], PyTuple_GET_ITEM(given, i), tensors)) return false;
      return true;
    case ArgumentShape::Kind::List:
      if (!PyList_CheckExact(given)) return refuse("an argument has another type");
      if (!of_size(PyList_GET_SIZE(given))) return false;
      for (size_t i = 0; i < shape.items.size(); ++i)
        if (!take(shape.items[i], PyList_GET_ITEM(given, i), tensors)) return false;
      return true;
    case ArgumentShape::Kind::Dict: {
      if (!PyDict_CheckExact(given)) return refuse("an argument has another type");
      if (!of_size(PyDict_GET_SIZE(given))) return false;
      PyObject *key, *value;
      Py_ssize_t position = 0;
      for (size_t i = 0; PyDict_Next(given, &position, &key, &value); ++i)
        if (!(key == shape.keys[i] || same_value(key, shape.keys[i])))
          return refuse("an argument has other keys");
        else if (!take(shape.items[i], value, tensors))
          return false;
      return true;
    }
  }
  return false;
}

bool CallReplay::find_tensors(const Tensors& arguments, Tensors& found) {
  const std::vector<TensorSources::Source>& sources = sources_.sources;
  size_t slots = 64;
  while (slots < 2 * sources.size()) slots *= 2;
  SmallVector<const Storage*, 256> seen;  // first sources of all memory so far: an open table
  seen.resize(slots);
  std::fill(&seen[0], &seen[0] + slots, nullptr);
  for (const TensorSources::Source& s : sources) {
    PyObject* o = nullptr;
    switch (s.from) {
      case TensorSources::From::Argument:
        o = reinterpret_cast<PyObject*>(arguments[s.index]);
        break;
      case TensorSources::From::Object:
        o = s.object;
        break;
      case TensorSources::From::Grad:
        o = found[s.index]->extra ? found[s.index]->extra->grad : nullptr;
        break;
      case TensorSources::From::Item:
        if (PyList_Check(s.object)) {
          const Py_ssize_t at = PyLong_AsSsize_t(s.key);
          o = at < PyList_GET_SIZE(s.object) ? PyList_GET_ITEM(s.object, at) : nullptr;
        } else {
          o = PyDict_GetItemWithError(s.object, s.key);
        }
        break;
    }
    if (!o || !is_tensor(o) || Py_TYPE(o) != s.type) return refuse("a tensor is gone, or of another type");
    auto* t = reinterpret_cast<Tensor*>(o);
    const Storage* storage = t->storage;
    const View &v = t->view, &w = s.view;
    if (v.dtype != w.dtype) return refuse("a tensor has another dtype");
    if (v.ndim != w.ndim || !std::equal(v.shape, v.shape + v.ndim, w.shape))
      return refuse("a tensor has another shape");
    if (!std::equal(v.strides, v.strides + v.ndim, w.strides)) return refuse("a tensor has another layout");
    if (storage->device() != s.device) return refuse("a tensor is on another device");
    if (t->requires_grad != s.requires_grad || t->history) return refuse("requires_grad of a tensor has changed");
    if (has_attributes(t) != s.has_attributes) return refuse("a tensor has got or lost attributes");
    if (t->inference != s.inference) return refuse("a tensor was made in another mode (inference_mode)");
    if (storage->pending() || storage->sharded()) return refuse("a tensor has no memory of its own yet");
    if (t->extra) {
      if ((t->extra->grad != nullptr) != s.has_grad)
        return refuse(s.has_grad ? "a gradient is gone" : "a tensor has a gradient that had none");
      if (t->extra->hooks || t->extra->after) return refuse("a tensor has hooks");
    } else if (s.has_grad) {
      return refuse("a gradient is gone");
    }
    const auto number = static_cast<int32_t>(found.size());
    found.push_back(t);
    if (s.first != number) {
      const Tensor* first = found[s.first];
      if (first->storage != storage || v.data - first->view.data != s.distance)
        return refuse("two tensors no longer share memory");
      if ((first == t) != s.same_object) return refuse("two tensors are one now, or were");
      continue;
    }
    size_t at = (reinterpret_cast<uintptr_t>(storage) * 0x9E3779B97F4A7C15ull >> 32) & (slots - 1);
    for (; seen[at]; at = (at + 1) & (slots - 1))
      if (seen[at] == storage) return refuse("two tensors share memory that did not");
    seen[at] = storage;
  }
  return true;
}

std::vector<Ref<Storage>> CallReplay::take_outputs(PlanRun& run) const {
  std::vector<Ref<Storage>> made;
  std::vector<int32_t> handed_out;
  for (size_t k = 0; k < outputs_.size(); ++k) {
    const View have = run.view(program_->outputs[k].value);
    int32_t root = program_->outputs[k].value;
    while (program_->values[root].kind == ValueKind::View) root = program_->values[root].source;
    View want = outputs_[k];
    want.data = have.data;
    if (program_->values[root].kind == ValueKind::Fresh && same_view(want, have) &&
        std::find(handed_out.begin(), handed_out.end(), root) == handed_out.end()) {
      Ref<Storage> storage = Ref<Storage>::adopt(run.share_storage(root));
      if (storage->data() == have.data) {
        run.forget_storage(root);
        handed_out.push_back(root);
        made.push_back(std::move(storage));
        continue;
      }
    }
    const int device = program_->device_of(program_->outputs[k].value);
    Ref<Storage> fresh =
        Ref<Storage>::adopt(Storage::allocate(checked_bytes(want.dtype, want.ndim, want.shape), device));
    want.data = fresh->data();
    library::Call copy{&have, 1, &want, 1, nullptr, 0, nullptr, 0};
    if (device)
      cuda::copy_elements(device - 1, have, want);
    else
      library::find("copy")(copy);
    made.push_back(std::move(fresh));
  }
  return made;
}

PyObject* CallReplay::make(const ResultShape& shape, const Made& made) const {
  const auto items_into = [&](PyObject* container, auto set) {
    for (size_t i = 0; container && i < shape.items.size(); ++i) {
      PyObject* item = make(shape.items[i], made);
      if (item && set(container, i, item) == 0) continue;
      Py_CLEAR(container);
    }
    return container;
  };
  const auto put_in_tuple = [](PyObject* c, size_t i, PyObject* o) {
    PyTuple_SET_ITEM(c, i, o);
    return 0;
  };
  switch (shape.kind) {
    case ResultShape::Kind::Output: {
      const Ref<Storage>& storage = made.storages[shape.index];
      storage->retain();
      Tensor* t = new_tensor(storage.get(), storage->data() + reinterpret_cast<intptr_t>(shape.view.data),
                             shape.view.dtype, shape.view.ndim, shape.view.shape, shape.view.strides);
      t->inference = grad_mode.inference;
      if (shape.history) set_history(t, shape.history.get(), shape.output_index);
      return reinterpret_cast<PyObject*>(t);
    }
    case ResultShape::Kind::Source:
      return Py_NewRef(reinterpret_cast<PyObject*>(made.found[shape.index]));
    case ResultShape::Kind::Value:
      return Py_NewRef(shape.value);
    case ResultShape::Kind::Tuple:
      return items_into(PyTuple_New(static_cast<Py_ssize_t>(shape.items.size())), put_in_tuple);
    case ResultShape::Kind::List:
      return items_into(PyList_New(static_cast<Py_ssize_t>(shape.items.size())),
                        [](PyObject* c, size_t i, PyObject* o) {
                          PyList_SET_ITEM(c, i, o);
                          return 0;
                        });
    case ResultShape::Kind::Dict:
      return items_into(PyDict_New(), [&](PyObject* c, size_t i, PyObject* o) {
        const int failed = PyDict_SetItem(c, shape.keys[i], o);
        Py_DECREF(o);
        return failed;
      });
    case ResultShape::Kind::Call: {
      PyObject* items = items_into(PyTuple_New(static_cast<Py_ssize_t>(shape.items.size())), put_in_tuple);
      PyObject* called = items ? PyObject_CallObject(shape.value, items) : nullptr;
      Py_XDECREF(items);
      return called;
    }
  }
  return nullptr;
}

void CallReplay::put(const Place& place, const Made& made) const {
  PyObject* value = place.value ? make(*place.value, made) : nullptr;
  if (place.value && !value) throw PythonError{};
  if (!place.owner) {
    AutogradExtra& extra = extra_of(made.found[place.source]);
    PyObject* before = std::exchange(extra.grad, value);
    Py_XDECREF(before);
    return;
  }
  int failed = 0;
  if (PyList_Check(place.owner))
    failed = PyList_SetItem(place.owner, PyLong_AsSsize_t(place.key), Py_NewRef(value));
  else
    failed = PyDict_SetItem(place.owner, place.key, value);
  Py_DECREF(value);
  if (failed) throw PythonError{};
}

PyObject* CallReplay::run(PyObject* given, PyObject* named) {
  broken = -1;
  why.clear();
  if (active_capture || active_batch || tracing_depth || !(sources_.modes == Modes::now())) {
    refuse("a mode has changed (no_grad, autocast, the default dtype or device, or the like)");
    return nullptr;
  }
  Tensors arguments, found;
  if (!take(args, given, arguments)) return nullptr;
  if (!named || PyDict_GET_SIZE(named) == 0) {
    if (!kwargs.items.empty()) {
      refuse("an argument is missing that was there before");
      return nullptr;
    }
  } else if (!take(kwargs, named, arguments)) {
    return nullptr;
  }
  for (size_t i = 0; i < facts.size(); ++i)
    if (!holds(facts[i])) {
      broken = static_cast<int64_t>(i);
      refuse("something that it reads has changed");
      return nullptr;
    }
  if (!find_tensors(arguments, found)) return nullptr;

  std::vector<Argument> numbers = numbers_;
  for (const BoundNumber& b : bound) {
    PyObject* now = PyDict_GetItemWithError(b.owner, b.key);
    if (!now || !PyFloat_CheckExact(now)) {
      refuse("a setting of an optimiser is no number any more");
      return nullptr;
    }
    numbers[b.number].real = PyFloat_AS_DOUBLE(now);
  }
  for (const StreamUse& use : streams_) {
    for (size_t i : use.seeds) numbers[i].integer = static_cast<int64_t>(use.generator->seed);
    for (auto& [i, distance] : use.offsets) numbers[i].integer = static_cast<int64_t>(use.generator->offset + distance);
  }

  std::vector<InputView> inputs(leaves_.size() + numbers.size() + ints_.size());
  std::vector<View> views;
  views.reserve(leaves_.size());
  SmallVector<Ref<Storage>, 32> held;  // other threads may change who holds them while the program runs
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const LeafBinding& leaf = leaves_[i];
    if (leaf.source < 0) {
      inputs[i].view = &leaf.view;
      continue;
    }
    const Tensor* t = found[leaf.source];
    held.push_back(Ref<Storage>::share(t->storage));
    views.push_back(leaf.view);
    views.back().data = t->view.data + leaf.distance * (leaf.whole ? 0 : 1);
    inputs[i].view = &views.back();
  }
  for (int32_t i : written_)
    if (const Storage* s = found[leaves_[i].source]->storage; s->borrowed() || !s->writable()) {
      refuse("memory that it writes belongs to another library, or is read-only");
      return nullptr;
    }
  for (size_t i = 0; i < numbers.size(); ++i)
    inputs[leaves_.size() + i].cell = reinterpret_cast<char*>(&numbers[i].integer);
  for (size_t i = 0; i < ints_.size(); ++i) inputs[leaves_.size() + numbers.size() + i].integer = ints_[i];

  PlanRun run(*program_, inputs.data());
  if (!run.guards_hold()) {
    refuse("sizes or addresses are not those that the program is for");
    return nullptr;
  }
  prepare_plan(*program_);
  SmallVector<TensorRef, 32> kept;
  for (size_t i = 0; i < found.size(); ++i) kept.push_back(TensorRef::share(found[i]));
  for (const StreamUse& use : streams_) use.generator->offset += use.advance;
  try {
    run.execute();
  } catch (Error& error) {
    const bool of_values =
        error.kind == ErrorKind::Index || error.kind == ErrorKind::LinAlg || error.kind == ErrorKind::Value;
    if (!of_values || program_->device || program_->waits || run.wrote_inputs()) throw;
    for (const StreamUse& use : streams_) use.generator->offset -= use.advance;
    refuse("an operator fails with these values");
    return nullptr;
  }
  for (int32_t i : written_) {
    Tensor* t = found[leaves_[i].source];
    if (t->unwatched)
      t->storage->bump_unwatched();
    else
      t->storage->bump_version();
  }
  ++replays;
  const std::vector<Ref<Storage>> storages = take_outputs(run);
  const Made made{found, storages};
  for (const Place& place : places) put(place, made);
  PyObject* value = make(result, made);
  if (!value) throw PythonError{};
  return value;
}

}  // namespace tandem
