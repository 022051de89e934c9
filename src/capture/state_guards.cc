#include "capture/state_guards.h"

#include <cstring>

#include "check.h"
#include "interpreter.h"
#include "tensor/tensor.h"

namespace tandem {

uint64_t version_of(PyTypeObject* type) {
  const auto valid = [&] { return (type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) && type->tp_version_tag; };
  if (!valid()) {  // looking something up gives it one
    PyObject* found = PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__mro__");
    Py_XDECREF(found);
    PyErr_Clear();
  }
  return valid() ? type->tp_version_tag : 0;
}

bool same_value(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyFloat_CheckExact(a)) {
    const double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
    return std::memcmp(&x, &y, sizeof x) == 0;
  }
  if (PyTuple_CheckExact(a)) {
    if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); ++i)
      if (!same_value(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
    return true;
  }
  if (!PyLong_CheckExact(a) && !PyUnicode_CheckExact(a) && !PyBytes_CheckExact(a)) return false;
  const int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal == 1;
}

bool matches(PyObject* now, PyObject* expected, Compare how) {
  switch (how) {
    case Compare::Identity:
      return now == expected;
    case Compare::Value:
      return same_value(now, expected);
    case Compare::Tensor:
      return is_tensor(now);
    case Compare::Number:
      return PyFloat_CheckExact(now);
  }
  return false;
}

namespace {

bool holds_dict(const Fact& fact) {
  if (static_cast<size_t>(PyDict_GET_SIZE(fact.of)) != fact.keys.size()) return false;
  PyObject *key, *value;
  Py_ssize_t position = 0;
  for (size_t i = 0; PyDict_Next(fact.of, &position, &key, &value); ++i)
    if (i >= fact.keys.size() || !(key == fact.keys[i] || same_value(key, fact.keys[i])) ||
        !matches(value, fact.values[i], fact.compare[i]))
      return false;
  return true;
}

bool holds_function(const Fact& fact) {
  auto* f = reinterpret_cast<PyFunctionObject*>(fact.of);
  const auto same = [](PyObject* now, PyObject* expected) { return (now ? now : Py_None) == expected; };
  return f->func_code == fact.values[0] && same(f->func_defaults, fact.values[1]) &&
         same(f->func_kwdefaults, fact.values[2]) && same(f->func_closure, fact.values[3]);
}

}  // namespace

bool holds(const Fact& fact) {
  switch (fact.kind) {
    case FactKind::Dict:
      return holds_dict(fact);
    case FactKind::Sequence: {
      if (static_cast<size_t>(PyList_GET_SIZE(fact.of)) != fact.values.size()) return false;
      for (size_t i = 0; i < fact.values.size(); ++i)
        if (!matches(PyList_GET_ITEM(fact.of, i), fact.values[i], fact.compare[i])) return false;
      return true;
    }
    case FactKind::Cell: {
      PyObject* now = PyCell_GET(fact.of);
      return fact.values.empty() ? !now : now && matches(now, fact.values[0], fact.compare[0]);
    }
    case FactKind::Entry: {
      PyObject* now = PyDict_GetItemWithError(fact.of, fact.keys[0]);
      if (!now && PyErr_Occurred()) PyErr_Clear();
      return fact.values.empty() ? !now : now && matches(now, fact.values[0], fact.compare[0]);
    }
    case FactKind::Type:
      return reinterpret_cast<PyObject*>(Py_TYPE(fact.of)) == fact.values[0];
    case FactKind::Class: {
      const uint64_t now = version_of(reinterpret_cast<PyTypeObject*>(fact.of));
      return now && now == fact.version;
    }
    case FactKind::Function:
      return holds_function(fact);
    case FactKind::Set: {
      const int equal = PyObject_RichCompareBool(fact.of, fact.values[0], Py_EQ);
      if (equal < 0) PyErr_Clear();
      return equal == 1;
    }
    case FactKind::Attribute: {
      PyObject* now = PyObject_GetAttr(fact.of, fact.keys[0]);
      if (!now) {
        PyErr_Clear();
        return fact.values.empty();
      }
      const bool same = !fact.values.empty() && matches(now, fact.values[0], fact.compare[0]);
      Py_DECREF(now);
      return same;
    }
  }
  return false;
}

Fact fact_from_python(PyObject* description, OwnedObjects& owned) {
  int kind = 0;
  PyObject *of, *keys, *values, *compare;
  if (!PyArg_ParseTuple(description, "iOO!O!O!", &kind, &of, &PyTuple_Type, &keys, &PyTuple_Type, &values,
                        &PyBytes_Type, &compare))
    throw PythonError{};
  Fact fact{static_cast<FactKind>(kind), owned.own(of), {}, {}, {}, 0};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); ++i) fact.keys.push_back(owned.own(PyTuple_GET_ITEM(keys, i)));
  for (Py_ssize_t i = 0; i < PyBytes_GET_SIZE(compare); ++i)
    fact.compare.push_back(static_cast<Compare>(PyBytes_AS_STRING(compare)[i]));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values); ++i) {
    // What may be another object at every call is not kept alive.
    const bool compared = i >= PyBytes_GET_SIZE(compare) || fact.compare[i] < Compare::Tensor;
    PyObject* value = PyTuple_GET_ITEM(values, i);
    fact.values.push_back(compared ? owned.own(value) : Py_None);
  }
  if (fact.kind == FactKind::Class) fact.version = PyLong_AsUnsignedLongLong(fact.values.at(0));
  return fact;
}

}  // namespace tandem
