#include "bindings/basic_index.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "autobatch/batch.h"
#include "autograd/record.h"
#include "callbacks.h"
#include "capture/capture.h"
#include "modes.h"
#include "operators/op_function.h"
#include "tensor/size_type.h"

namespace tandem {

namespace {

struct Cursor {
  const View& x;
  char* data;
  int axis = 0;  // of x: the next to be indexed
  int ndim = 0;  // of the result
  int64_t shape[kMaxDims], strides[kMaxDims];

  bool add(int64_t size, int64_t stride) {
    if (ndim == kMaxDims) return false;
    shape[ndim] = size;
    strides[ndim++] = stride;
    return true;
  }
  void move(int64_t elements) { data += elements * static_cast<int64_t>(item_size(x.dtype)); }

  bool integer(PyObject* k) {
    int overflow = 0;
    int64_t i = PyLong_AsLongLongAndOverflow(k, &overflow);
    const int64_t n = x.shape[axis];
    if (overflow || i < -n || i >= n) return false;
    move((i < 0 ? i + n : i) * x.strides[axis++]);
    return true;
  }

  static bool is_plain(PyObject* part) { return part == Py_None || PyLong_CheckExact(part); }

  bool slice(PyObject* k) {
    auto* s = reinterpret_cast<PySliceObject*>(k);
    if (!is_plain(s->start) || !is_plain(s->stop) || !is_plain(s->step)) return false;
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(k, &start, &stop, &step) < 0) {  // step 0
      PyErr_Clear();
      return false;
    }
    const int64_t size = PySlice_AdjustIndices(x.shape[axis], &start, &stop, step);
    if (size > 0) move(start * x.strides[axis]);
    const int64_t stride = x.strides[axis++];
    return add(size, size > 1 ? stride * step : stride);
  }

  bool rest(int until) {
    while (axis < until) {
      if (!add(x.shape[axis], x.strides[axis])) return false;
      ++axis;
    }
    return true;
  }
};

}  // namespace

// Whether a view of x needs no plan: nothing is captured or recorded, or x is deferred, and so are its views.
static bool needs_no_plan(const Tensor* x) {
  if (active_capture || tracing_depth > 0 || x->storage->sharded() || x->in_parts) return false;
  if (x->storage->pending()) return active_batch && x->storage->batch() == active_batch && active_batch->takes_views(x);
  if (!grad_mode.enabled) return true;
  const auto* base = x->extra ? reinterpret_cast<const Tensor*>(x->extra->base) : nullptr;
  return !x->requires_grad && !(base && base->requires_grad);
}

static Tensor* view_of(Tensor* x, char* data, int ndim, const int64_t* shape, const int64_t* strides) {
  Tensor* made;
  if (x->storage->pending()) {
    View v;
    v.data = data, v.dtype = x->view.dtype, v.ndim = ndim;
    std::copy_n(shape, ndim, v.shape);
    std::copy_n(strides, ndim, v.strides);
    made = active_batch->view(x, v, true).leak();
  } else {
    made = new_view(x, data, x->view.dtype, ndim, shape, strides);
  }
  made->inference = grad_mode.inference || x->inference;
  if (!made->inference) {
    AutogradExtra& extra = extra_of(made);
    extra.base = Py_NewRef(x->extra && x->extra->base ? x->extra->base : reinterpret_cast<PyObject*>(x));
    extra.history_version = x->storage->version();
  }
  return made;
}

PyObject* chunk_views(Tensor* x, int64_t chunks, int64_t axis) {
  const View& v = x->view;
  if (axis < 0) axis += v.ndim;
  if (!needs_no_plan(x) || chunks < 1 || axis < 0 || axis >= v.ndim || v.shape[axis] == 0) return nullptr;
  const int64_t n = v.shape[axis], size = (n + chunks - 1) / chunks, count = (n + size - 1) / size;
  int64_t shape[kMaxDims];
  std::copy_n(v.shape, v.ndim, shape);
  PyObject* made = PyTuple_New(count);
  for (int64_t i = 0; made && i < count; ++i) {
    shape[axis] = std::min(size, n - i * size);
    char* data = v.data + i * size * v.strides[axis] * static_cast<int64_t>(item_size(v.dtype));
    PyTuple_SET_ITEM(made, i, reinterpret_cast<PyObject*>(view_of(x, data, v.ndim, shape, v.strides)));
  }
  return made;
}

Tensor* basic_view(Tensor* x, PyObject* key) {
  if (!needs_no_plan(x)) return nullptr;
  PyObject* const* items = &key;
  Py_ssize_t count = 1;
  if (is_plain_tuple(key)) {
    items = reinterpret_cast<PyTupleObject*>(key)->ob_item;
    count = PyTuple_GET_SIZE(key);
  }
  int indexed = 0;
  bool has_ellipsis = false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* k = items[i];
    if (PyLong_CheckExact(k) || PySlice_Check(k))
      ++indexed;
    else if (k == Py_Ellipsis && !has_ellipsis)
      has_ellipsis = true;
    else if (k != Py_None)
      return nullptr;
  }
  if (indexed > x->view.ndim) return nullptr;
  Cursor cursor{x->view, x->view.data};
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* k = items[i];
    bool done;
    if (PyLong_CheckExact(k))
      done = cursor.integer(k);
    else if (PySlice_Check(k))
      done = cursor.slice(k);
    else if (k == Py_None)
      done = cursor.add(1, 0);
    else
      done = cursor.rest(cursor.axis + x->view.ndim - indexed);
    if (!done) return nullptr;
  }
  if (!cursor.rest(x->view.ndim)) return nullptr;
  return view_of(x, cursor.data, cursor.ndim, cursor.shape, cursor.strides);
}

namespace {

// See Note [Index patterns] in tandem/ops/getitem.py.
struct Pattern {
  static constexpr int kMost = 16;
  static constexpr int64_t kFar = int64_t{1} << 62;
  char letters[kMost];
  int count = 0;
  SmallVector<int64_t, 8> numbers;

  static bool number_of(PyObject* o, int64_t* out) {
    if (!PyLong_CheckExact(o)) return false;
    int overflow = 0;
    *out = PyLong_AsLongLongAndOverflow(o, &overflow);
    return !overflow && *out >= -kFar && *out <= kFar;
  }

  bool add(PyObject* k) {
    if (count == kMost) return false;
    char& letter = letters[count++];
    int64_t number = 0;
    if (k == Py_None) {
      letter = 'n';
    } else if (k == Py_Ellipsis) {
      letter = 'e';
      return std::find(letters, letters + count - 1, 'e') == letters + count - 1;
    } else if (PySlice_Check(k)) {
      auto* s = reinterpret_cast<PySliceObject*>(k);
      PyObject* const parts[] = {s->start, s->stop, s->step};
      int bits = 0;
      for (int i = 0; i < 3; ++i) {
        if (parts[i] == Py_None) continue;
        if (!number_of(parts[i], &number)) return false;
        bits |= 1 << i;
        numbers.push_back(number);
      }
      letter = bits ? static_cast<char>('A' + bits - 1) : ':';
    } else {
      letter = 'i';
      if (!number_of(k, &number)) return false;
      numbers.push_back(number);
    }
    return true;
  }
};

PyObject* text_of(const Pattern& pattern) {  // borrowed: one object for each pattern
  static auto* texts = new std::unordered_map<std::string, PyObject*>();
  constexpr size_t kMostTexts = 4096;
  const std::string letters(pattern.letters, static_cast<size_t>(pattern.count));
  if (auto found = texts->find(letters); found != texts->end()) return found->second;
  if (texts->size() >= kMostTexts) return nullptr;
  PyObject* text = PyUnicode_FromStringAndSize(letters.data(), static_cast<Py_ssize_t>(letters.size()));
  return text ? (*texts)[letters] = text : nullptr;
}

}  // namespace

PyObject* index_basic(Tensor* x, PyObject* key) {
  if (tracing_depth > 0 || x->in_parts || x->storage->sharded() || !callbacks.index_basic) return nullptr;
  if (!PyLong_CheckExact(key) && !PySlice_Check(key) && !is_plain_tuple(key)) return nullptr;
  Pattern pattern;
  if (is_plain_tuple(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i)
      if (!pattern.add(PyTuple_GET_ITEM(key, i))) return nullptr;
  } else if (!pattern.add(key)) {
    return nullptr;
  }
  PyObject* text = text_of(pattern);
  if (!text) {
    PyErr_Clear();
    return nullptr;
  }
  SmallVector<Argument, 8> arguments;
  Argument& tensor = arguments.emplace_back();
  tensor.kind = Argument::Kind::Tensor;
  tensor.tensor = x;
  Argument& letters = arguments.emplace_back();
  letters.kind = Argument::Kind::Static;
  letters.object = text;
  Argument& count = arguments.emplace_back();
  count.kind = Argument::Kind::Count;
  count.integer = static_cast<int64_t>(pattern.numbers.size());
  for (int64_t number : pattern.numbers) {
    Argument& a = arguments.emplace_back();
    a.kind = Argument::Kind::Int;
    a.integer = number;
  }
  return call_operator(reinterpret_cast<OpFunction*>(callbacks.index_basic), arguments.data(),
                       static_cast<int>(arguments.size()));
}

}  // namespace tandem
