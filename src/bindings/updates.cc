// The loop of an optimiser's step over its parameters (tandem/optim/optimizer.py): an update rule called for each.
#include <nanobind/nanobind.h>

#include "bindings/bindings.h"
#include "small_vector.h"
#include "tensor/node.h"

namespace nb = nanobind;

namespace tandem {

namespace {

// What a rule is called with, held while it runs.
class RuleArguments {
 public:
  void add(PyObject* o) { list_.push_back(Py_NewRef(o)); }
  void drop_to(size_t count) {
    while (list_.size() > count) {
      Py_DECREF(list_.back());
      list_.resize(list_.size() - 1);
    }
  }
  PyObject* call(PyObject* rule) { return PyObject_Vectorcall(rule, list_.data(), list_.size(), nullptr); }
  ~RuleArguments() { drop_to(0); }

 private:
  SmallVector<PyObject*, 24> list_;
};

uint32_t version_of(const Tensor* t) {
  return t->storage->version_for(t->unwatched);
}

// [its "step", the version that was looked at, its value] of a parameter, if that is still so and the value is the one
// before `count`; borrowed, or null.
PyObject* known_step(PyObject* counts, PyObject* p, PyObject* step, double count) {
  PyObject* known = PyDict_GetItemWithError(counts, p);
  if (!known || !PyList_CheckExact(known) || PyList_GET_SIZE(known) != 3) return nullptr;
  PyObject *version = PyList_GET_ITEM(known, 1), *value = PyList_GET_ITEM(known, 2);
  if (PyList_GET_ITEM(known, 0) != step || !PyLong_CheckExact(version) || !PyFloat_CheckExact(value)) return nullptr;
  const bool is_it = PyLong_AsUnsignedLong(version) == version_of(reinterpret_cast<Tensor*>(step)) &&
                     PyFloat_AS_DOUBLE(value) + 1 == count;
  return is_it ? known : nullptr;
}

Py_ssize_t apply_rule(PyObject* params, Py_ssize_t first, PyObject* state, PyObject* names, PyObject* rule,
                      PyObject* settings, PyObject* counts, PyObject* count) {
  static PyObject* const step_name = PyUnicode_InternFromString("step");
  const Py_ssize_t num_names = PyTuple_GET_SIZE(names);
  for (Py_ssize_t i = first; i < PyList_GET_SIZE(params); ++i) {
    PyObject* p = PyList_GET_ITEM(params, i);
    if (!is_tensor(p)) return i;
    auto* t = reinterpret_cast<Tensor*>(p);
    PyObject* g = t->extra ? t->extra->grad : nullptr;
    if (!g) continue;
    if (t->in_parts || reinterpret_cast<Tensor*>(g)->in_parts || is_complex(t->view.dtype)) return i;
    RuleArguments arguments;
    arguments.add(p);
    PyObject* known = nullptr;
    if (num_names) {
      PyObject* own = PyDict_GetItemWithError(state, p);
      if (!own || !PyDict_CheckExact(own) || PyDict_GET_SIZE(own) != num_names) return i;
      for (Py_ssize_t k = 0; k < num_names; ++k) {
        PyObject* value = PyDict_GetItemWithError(own, PyTuple_GET_ITEM(names, k));
        if (!value || !is_tensor(value)) return i;
        arguments.add(value);
      }
      if (counts) {
        PyObject* step = PyDict_GetItemWithError(own, step_name);
        known = step ? known_step(counts, p, step, PyFloat_AS_DOUBLE(count)) : nullptr;
        if (!known) return i;
        Py_INCREF(known);
      }
    }
    const nb::object held = nb::steal(known);
    arguments.add(g);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(settings); ++k) arguments.add(PyTuple_GET_ITEM(settings, k));
    PyObject* result = arguments.call(rule);
    if (!result) nb::raise_python_error();
    Py_DECREF(result);
    if (known) {
      const auto* step = reinterpret_cast<Tensor*>(PyList_GET_ITEM(known, 0));
      if (PyList_SetItem(known, 1, PyLong_FromUnsignedLong(version_of(step))) ||
          PyList_SetItem(known, 2, Py_NewRef(count)))
        nb::raise_python_error();
    }
  }
  return PyList_GET_SIZE(params);
}

}  // namespace

void register_updates(nb::module_& m) {
  m.def(
      "apply_rule",
      [](nb::handle params, Py_ssize_t first, nb::handle state, nb::tuple names, nb::handle rule, nb::tuple settings,
         nb::object counts, nb::object count) {
        if (!PyList_Check(params.ptr()) || !PyDict_Check(state.ptr())) return first;
        const bool counted = !counts.is_none();
        if (counted && (!PyDict_Check(counts.ptr()) || !PyFloat_CheckExact(count.ptr())))
          throw nb::type_error("counts must be a dict and count a float");
        return apply_rule(params.ptr(), first, state.ptr(), names.ptr(), rule.ptr(), settings.ptr(),
                          counted ? counts.ptr() : nullptr, count.ptr());
      },
      nb::arg("params"), nb::arg("first"), nb::arg("state"), nb::arg("names"), nb::arg("rule"), nb::arg("settings"),
      nb::arg("counts") = nb::none(), nb::arg("count") = nb::none(),
      "Calls rule(p, *its state, its gradient, *settings) for each parameter from the first on that has a gradient, as "
      "long as nothing is unusual about one; the number of that one, or how many there are.");
}

}  // namespace tandem
