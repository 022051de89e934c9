// Attributes and calls of modules: parameters, modules and buffers are looked up here, as nn.Module.__getattr__ does in
// Python, and forward is called, as nn.Module.__call__ does where there are no hooks.
#include <nanobind/nanobind.h>

#include "bindings/bindings.h"
#include "capture/capture.h"

namespace nb = nanobind;

namespace tandem {

namespace {

getattrofunc usual = nullptr;     // what Python gives classes with a __getattr__
PyObject* own_getattr = nullptr;  // nn.Module.__getattr__

// A new reference, or null; an exception is set only if something failed.
PyObject* attribute(PyObject* self, PyObject* name) {
#if PY_VERSION_HEX < 0x030D0000
  return _PyObject_GenericGetAttrWithDict(self, name, nullptr, 1);
#else
  PyObject* found = PyObject_GenericGetAttr(self, name);
  if (!found && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
  return found;
#endif
}

PyObject* member(PyObject* self, PyObject* name) {
  static PyObject* const kinds[] = {PyUnicode_InternFromString("_parameters"), PyUnicode_InternFromString("_modules"),
                                    PyUnicode_InternFromString("_buffers")};
  PyObject** own = _PyObject_GetDictPtr(self);
  const bool of_class = _PyType_Lookup(Py_TYPE(self), name);
  if (of_class || !own || !*own) {
    if (PyObject* found = attribute(self, name)) return found;
    if (PyErr_Occurred()) return nullptr;
  } else if (PyObject* found = PyDict_GetItemWithError(*own, name)) {
    return Py_NewRef(found);
  }
  for (PyObject* kind : kinds) {
    PyObject* members = own && *own ? PyDict_GetItemWithError(*own, kind) : nullptr;
    if (!members || !PyDict_Check(members)) continue;
    if (PyObject* found = PyDict_GetItemWithError(members, name)) return Py_NewRef(found);
  }
  if (PyErr_Occurred()) return nullptr;
  PyObject* args[] = {self, name};
  return PyObject_Vectorcall(own_getattr, args, 2, nullptr);  // raises
}

ternaryfunc usual_call = nullptr;
PyObject* own_call = nullptr;  // nn.Module.__call__
PyObject* note = nullptr;      // tandem.errors.module_calls.note

PyObject* call(PyObject* self, PyObject* args, PyObject* keywords) {
  static PyObject* const hooks = PyUnicode_InternFromString("_hooks");
  static PyObject* const forward = PyUnicode_InternFromString("forward");
  constexpr Py_ssize_t kMost = 15;
  const Py_ssize_t count = PyTuple_GET_SIZE(args);
  PyObject** own = _PyObject_GetDictPtr(self);
  PyObject* function = _PyType_Lookup(Py_TYPE(self), forward);
  if ((keywords && PyDict_GET_SIZE(keywords)) || count > kMost || !own || !*own || !function ||
      !PyFunction_Check(function) || PyDict_GetItemWithError(*own, forward) || PyDict_GetItemWithError(*own, hooks))
    return usual_call(self, args, keywords);
  PyObject* given[kMost + 1] = {self};
  for (Py_ssize_t i = 0; i < count; ++i) given[i + 1] = PyTuple_GET_ITEM(args, i);
  Py_INCREF(function);
  const int64_t first = active_capture ? active_capture->num_captured() : -1;
  const int64_t range = open_module(self);
  PyObject* result = PyObject_Vectorcall(function, given, static_cast<size_t>(count) + 1, nullptr);
  close_module(range, !result);
  Py_DECREF(function);
  if (result || !PyErr_ExceptionMatches(PyExc_Exception)) return result;
  PyObject *type, *error, *trace;
  PyErr_Fetch(&type, &error, &trace);
  PyErr_NormalizeException(&type, &error, &trace);
  if (trace) PyException_SetTraceback(error, trace);
  PyObject* captured =
      PyObject_CallFunction(note, "OOL", error, self, static_cast<long long>(first));  // the error names this module
  if (!captured) {
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    return nullptr;
  }
  Py_DECREF(captured);
  PyErr_Restore(type, error, trace);
  return nullptr;
}

}  // namespace

void register_members(nb::module_& m) {
  m.def(
      "look_up_members",
      [](nb::object cls) {
        if (!PyType_Check(cls.ptr())) throw nb::type_error("expected a class");
        auto* type = reinterpret_cast<PyTypeObject*>(cls.ptr());
        nb::object getattr = nb::borrow(_PyType_Lookup(type, nb::str("__getattr__").ptr()));
        nb::object object_type = nb::borrow(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
        if (!own_getattr) {
          own_getattr = Py_NewRef(getattr.ptr());
          usual = type->tp_getattro;
        }
        const bool plain = getattr.ptr() == own_getattr && type->tp_getattro == usual &&
                           cls.attr("__getattribute__").is(object_type.attr("__getattribute__"));
        if (!plain) return;
        type->tp_getattro = member;
        nb::object called = nb::borrow(_PyType_Lookup(type, nb::str("__call__").ptr()));
        if (!own_call) {
          nb::object module_calls = nb::module_::import_("tandem.errors.module_calls");
          note = nb::object(module_calls.attr("note")).release().ptr();
          own_call = Py_NewRef(called.ptr());
          usual_call = type->tp_call;
        }
        if (called.ptr() == own_call && type->tp_call == usual_call) type->tp_call = call;
        PyType_Modified(type);
      },
      nb::arg("cls"));
}

}  // namespace tandem
