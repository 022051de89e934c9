#include "autograd/record_hooks.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "check.h"
#include "known_source.h"

namespace tandem {

void GradientKind::check(const Tensor* now) const {
  const View& w = now->view;
  if (view_.ndim != w.ndim || !std::equal(view_.shape, view_.shape + view_.ndim, w.shape))
    fail(ErrorKind::Shape, "a hook replaced a gradient of shape ", format_shape(view_.ndim, view_.shape),
         " by one of shape ", format_shape(w.ndim, w.shape));
  if (view_.dtype != w.dtype)
    fail(ErrorKind::Type, "a hook replaced a gradient of ", name(view_.dtype), " by one of ", name(w.dtype),
         "; convert what it returns to the gradient's dtype");
  if (device_ >= 0 && !now->in_parts && device_ != now->storage->device())
    fail(ErrorKind::Type,
         "a hook replaced a gradient by one on another device; move what it returns to the gradient's");
}

namespace {

// A new reference, or the error that is set.
class Owned {
 public:
  explicit Owned(PyObject* object) : object_(object) {
    if (!object) throw PythonError{};
  }
  Owned(const Owned&) = delete;
  ~Owned() { Py_DECREF(object_); }
  PyObject* get() const { return object_; }

 private:
  PyObject* object_;
};

PyObject* tuple_of(const TensorList& grads) {
  PyObject* made = PyTuple_New(static_cast<Py_ssize_t>(grads.size()));
  for (size_t i = 0; made && i < grads.size(); ++i)
    PyTuple_SET_ITEM(made, static_cast<Py_ssize_t>(i), Py_NewRef(grads[i] ? grads[i].object() : Py_None));
  return made;
}

// What a hook returned instead of so many gradients: a tuple, or one tensor where there is one.
TensorList replaced_by(PyObject* result, TensorList grads, const std::vector<std::optional<GradientKind>>& kinds) {
  if (result == Py_None) {  // but it may have given the tensors other data
    for (size_t i = 0; i < grads.size(); ++i)
      if (kinds[i]) kinds[i]->check(grads[i].get());
    return grads;
  }
  PyObject* const* items = PyTuple_Check(result) ? &PyTuple_GET_ITEM(result, 0) : &result;
  const size_t count = PyTuple_Check(result) ? static_cast<size_t>(PyTuple_GET_SIZE(result)) : 1;
  if (count != grads.size())
    fail(ErrorKind::Type, "a hook of a record returned ", count, " gradients; it must return ", grads.size(),
         " or None");
  for (size_t i = 0; i < count; ++i) {
    if (items[i] == Py_None) {
      grads[i] = TensorRef();
    } else if (is_tensor(items[i])) {
      auto* now = reinterpret_cast<Tensor*>(items[i]);
      if (!kinds[i]) fail(ErrorKind::Type, "a hook of a record returned a gradient where it was given None");
      kinds[i]->check(now);
      grads[i] = TensorRef::share(now);
    } else {
      fail(ErrorKind::Type, "a hook of a record returned a ", Py_TYPE(items[i])->tp_name, " among the gradients");
    }
  }
  return grads;
}

// hook(grads) for each, or hook(grads, others).
TensorList run_all(PyObject* hooks, TensorList grads, const TensorList* others) {
  const NoKnownSource looked_for;
  const Owned list(PyDict_Values(hooks));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i) {
    std::vector<std::optional<GradientKind>> kinds(grads.size());
    for (size_t k = 0; k < grads.size(); ++k)
      if (grads[k]) kinds[k].emplace(grads[k].get());
    const Owned first(tuple_of(grads)), second(others ? tuple_of(*others) : Py_NewRef(Py_None));
    PyObject* args[] = {first.get(), second.get()};
    const Owned result(PyObject_Vectorcall(PyList_GET_ITEM(list.get(), i), args, others ? 2 : 1, nullptr));
    grads = replaced_by(result.get(), std::move(grads), kinds);
  }
  return grads;
}

}  // namespace

PyObject* record_hooks(const Node& node, uint32_t kind) {
  for (const auto& [output, hooks] : node.hooks)
    if (output == kind) return PyDict_GET_SIZE(hooks) ? hooks : nullptr;
  return nullptr;
}

TensorList run_before_record(PyObject* hooks, TensorList grads) {
  return run_all(hooks, std::move(grads), nullptr);
}

TensorList run_after_record(PyObject* hooks, TensorList given, const TensorList& incoming) {
  return run_all(hooks, std::move(given), &incoming);
}

}  // namespace tandem
