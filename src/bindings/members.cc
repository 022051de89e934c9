// Attributes of modules: parameters, modules and buffers are looked up here, as nn.Module.__getattr__ does in Python.
#include <nanobind/nanobind.h>

#include "bindings/bindings.h"

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
  if (PyObject* found = attribute(self, name)) return found;
  if (PyErr_Occurred()) return nullptr;
  PyObject** own = _PyObject_GetDictPtr(self);
  for (PyObject* kind : kinds) {
    PyObject* members = own && *own ? PyDict_GetItemWithError(*own, kind) : nullptr;
    if (!members || !PyDict_Check(members)) continue;
    if (PyObject* found = PyDict_GetItemWithError(members, name)) return Py_NewRef(found);
  }
  if (PyErr_Occurred()) return nullptr;
  PyObject* args[] = {self, name};
  return PyObject_Vectorcall(own_getattr, args, 2, nullptr);  // raises
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
        PyType_Modified(type);
      },
      nb::arg("cls"));
}

}  // namespace tandem
