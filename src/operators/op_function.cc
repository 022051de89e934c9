// The Python type of operators.
#include "operators/op_function.h"

#include <structmember.h>

#include "check.h"
#include "operators/bind.h"
#include "overrides.h"
#include "raise.h"

namespace tandem {

PyTypeObject* OpFunctionType = nullptr;

namespace {

// Strings that are interned are the same only if they are one.
bool same_name(PyObject* a, PyObject* b) {
  return a == b || (!(PyUnicode_CHECK_INTERNED(a) && PyUnicode_CHECK_INTERNED(b)) && PyUnicode_Compare(a, b) == 0);
}

// Keywords that every operator takes, whatever its parameters are: out=, inplace=, and some that mean nothing here.
bool has_extras(OpFunction* op, PyObject* kwnames) {
  static PyObject* const extras[] = {
      PyUnicode_InternFromString("out"),           PyUnicode_InternFromString("inplace"),
      PyUnicode_InternFromString("non_blocking"),  PyUnicode_InternFromString("sparse_grad"),
      PyUnicode_InternFromString("layout"),        PyUnicode_InternFromString("pin_memory"),
      PyUnicode_InternFromString("memory_format"), PyUnicode_InternFromString("_stacklevel")};
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwnames); ++k) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, k);
    for (PyObject* extra : extras) {
      if (!same_name(name, extra)) continue;
      bool own = false;
      for (const Parameter& parameter : *op->parameters) own |= same_name(parameter.name, name);
      if (!own) return true;
    }
  }
  return false;
}

// callback(op, args, kwargs)
PyObject* call_back(PyObject* callback, PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  PyObject* tuple = PyTuple_New(nargs);
  PyObject* keywords = PyDict_New();
  bool ok = tuple && keywords;
  for (Py_ssize_t i = 0; ok && i < nargs; ++i) PyTuple_SET_ITEM(tuple, i, Py_NewRef(args[i]));
  for (Py_ssize_t k = 0; ok && kwnames && k < PyTuple_GET_SIZE(kwnames); ++k)
    ok = PyDict_SetItem(keywords, PyTuple_GET_ITEM(kwnames, k), args[nargs + k]) == 0;
  PyObject* result = nullptr;
  if (ok) {
    PyObject* arguments[] = {self, tuple, keywords};
    result = PyObject_Vectorcall(callback, arguments, 3, nullptr);
  }
  Py_XDECREF(tuple);
  Py_XDECREF(keywords);
  return result;
}

// One boolean more than there are parameters: relu(x, True), as functions of PyTorch take inplace by position.
bool ends_with_extra(OpFunction* op, PyObject* const* args, Py_ssize_t nargs) {
  return nargs == op->num_positional + 1 && op->variadic < 0 && PyBool_Check(args[nargs - 1]);
}

// Whether an object, or one in a list, is of a class with __torch_function__, PyTorch's way to say what operators do
// with it.
bool has_override(PyObject* o, bool inside = false) {
  if (is_tensor_exact(o)) return false;
  static PyObject* const name = PyUnicode_InternFromString("__torch_function__");
  static PyObject* const asked = PyUnicode_InternFromString("_overrides_operators");  // of subclasses of Tensor
  if (is_tensor(o)) return tensors_override && !overrides_disabled && _PyType_Lookup(Py_TYPE(o), asked) == Py_True;
  if (_PyType_Lookup(Py_TYPE(o), name)) return true;
  if (inside || !(PyList_Check(o) || PyTuple_Check(o))) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i)
    if (has_override(PySequence_Fast_GET_ITEM(o, i), true)) return true;
  return false;
}

bool any_override(PyObject* const* args, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; ++i)
    if (has_override(args[i])) return true;
  return false;
}

PyObject* results_of(OpFunction* op, Argument* arguments, int count) {
  bool returns_tuple = false;
  TensorList results = dispatch(op, arguments, count, &returns_tuple);
  if (!returns_tuple) {
    if (results.empty()) Py_RETURN_NONE;
    return reinterpret_cast<PyObject*>(results[0].leak());
  }
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(results.size()));
  if (!tuple) return nullptr;
  for (size_t i = 0; i < results.size(); ++i)
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), reinterpret_cast<PyObject*>(results[i].leak()));
  return tuple;
}

// Inside a catch: the exception becomes Python's.
PyObject* raised(OpFunction* op) {
  try {
    throw;
  } catch (const PythonError&) {
  } catch (const Error& error) {
    raise_operator_error(op, error);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

PyObject* vectorcall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  auto* op = reinterpret_cast<OpFunction*>(self);
  if (callbacks.extras &&
      ((kwnames && has_extras(op, kwnames)) || ends_with_extra(op, args, PyVectorcall_NARGS(nargsf))))
    return call_back(callbacks.extras, self, args, PyVectorcall_NARGS(nargsf), kwnames);
  // Classes that are no tensors are asked below, when the call has failed; calls with their subclasses would not fail.
  if (tensors_override && !overrides_disabled && callbacks.overridden &&
      any_override(args, PyVectorcall_NARGS(nargsf) + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0))) [[unlikely]]
    return call_back(callbacks.overridden, self, args, PyVectorcall_NARGS(nargsf), kwnames);
  BoundCall call;
  try {
    bind(op, args, PyVectorcall_NARGS(nargsf), kwnames, call);
    if (tracing_depth > 0) {
      if (has_parts(op, call)) throw InParts{};
      return call_implementation(op, call);
    }
    Arguments arguments;
    flatten(op, call, arguments);
    return results_of(op, arguments.data(), arguments.size());
  } catch (const SymbolicArgument&) {
    return call_implementation(op, call);
  } catch (const InParts&) {
    return call_in_parts(op, call);
  } catch (...) {
    raised(op);
  }
  // Asked only now that the call has failed, so that calls with tensors pay nothing for it.
  if (!callbacks.overridden) return nullptr;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);  // looking up attributes clears it
  if (!any_override(args, PyVectorcall_NARGS(nargsf) + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0))) {
    PyErr_Restore(type, value, traceback);
    return nullptr;
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return call_back(callbacks.overridden, self, args, PyVectorcall_NARGS(nargsf), kwnames);
}

ParameterKind parse_kind(const char* text) {
  std::string s = text;
  if (s == "tensor") return ParameterKind::Tensor;
  if (s == "divisor") return ParameterKind::Divisor;
  if (s == "factor") return ParameterKind::Factor;
  if (s == "optional_factor") return ParameterKind::OptionalFactor;
  if (s == "written") return ParameterKind::Written;
  if (s == "optional_written") return ParameterKind::OptionalWritten;
  if (s == "optional_tensor") return ParameterKind::OptionalTensor;
  if (s == "tensors") return ParameterKind::Tensors;
  if (s == "static") return ParameterKind::Static;
  if (s == "int") return ParameterKind::Int;
  if (s == "ints") return ParameterKind::Ints;
  if (s == "generator") return ParameterKind::Generator;
  fail(ErrorKind::Internal, "unknown parameter kind ", s);
}

// OpFunction(name, implementation, parameters, num_positional, variadic, writes)
// parameters: list of (name, kind, required, default, keyword_only)
PyObject* op_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *name, *implementation, *parameters;
  int num_positional, variadic, writes;
  if (!PyArg_ParseTuple(args, "UOO!iii", &name, &implementation, &PyList_Type, &parameters, &num_positional, &variadic,
                        &writes))
    return nullptr;
  Py_ssize_t n = PyList_GET_SIZE(parameters);
  if (n > kMaxParameters) {
    PyErr_Format(PyExc_ValueError, "%U: more than %d parameters", name, kMaxParameters);
    return nullptr;
  }
  auto list = std::make_unique<std::vector<Parameter>>();
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject *pname, *pdefault;
    const char* kind;
    int required, keyword_only;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(parameters, i), "UspOp", &pname, &kind, &required, &pdefault, &keyword_only))
      return nullptr;
    Py_INCREF(pname);
    PyUnicode_InternInPlace(&pname);
    try {
      list->push_back(
          {pname, parse_kind(kind), required ? nullptr : Py_NewRef(pdefault), static_cast<bool>(keyword_only)});
    } catch (const Error& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
      return nullptr;
    }
  }
  auto* self = reinterpret_cast<OpFunction*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->vectorcall = vectorcall;
  self->parameters = list.release();
  self->cache = new PlanCache();
  self->name = Py_NewRef(name);
  self->implementation = Py_NewRef(implementation);
  self->num_positional = num_positional;
  self->variadic = variadic;
  self->writes = writes;
  self->constants = -1;
  self->joins = Joins::No;
  return reinterpret_cast<PyObject*>(self);
}

int op_traverse(PyObject* o, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<OpFunction*>(o);
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(self->implementation);
  Py_VISIT(self->attributes);
  return 0;
}

int op_clear(PyObject* o) {
  auto* self = reinterpret_cast<OpFunction*>(o);
  Py_CLEAR(self->attributes);
  return 0;
}

void op_dealloc(PyObject* o) {
  auto* self = reinterpret_cast<OpFunction*>(o);
  PyObject_GC_UnTrack(o);
  for (Parameter& p : *self->parameters) {
    Py_DECREF(p.name);
    Py_XDECREF(p.default_value);
  }
  delete self->parameters;
  delete self->cache;
  Py_XDECREF(self->name);
  Py_XDECREF(self->implementation);
  Py_XDECREF(self->attributes);
  PyTypeObject* type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
}

PyObject* op_repr(PyObject* o) {
  return PyUnicode_FromFormat("<tandem operator %U>", reinterpret_cast<OpFunction*>(o)->name);
}

// x.relu(): found on the class, bound like a function.
PyObject* op_get(PyObject* self, PyObject* instance, PyObject*) {
  if (!instance || instance == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, instance);
}

PyObject* op_clear_cache(PyObject* o, PyObject*) {
  reinterpret_cast<OpFunction*>(o)->cache->clear();
  ++PlanCache::num_cleared;
  Py_RETURN_NONE;
}

PyObject* op_num_plans(PyObject* o, void*) {
  return PyLong_FromSize_t(reinterpret_cast<OpFunction*>(o)->cache->num_plans());
}

PyMethodDef methods[] = {
    {"clear_cache", op_clear_cache, METH_NOARGS, "Forgets all plans."},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(OpFunction, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(OpFunction, attributes), READONLY, nullptr},
    {"__name__", T_OBJECT, offsetof(OpFunction, name), READONLY, nullptr},
    {"constants", T_INT, offsetof(OpFunction, constants), 0,
     "From this argument on they are weights that stay the same."},
    {"joins", T_INT, offsetof(OpFunction, joins), 0,
     "Whether it joins tensors along an axis (1), or along a new one (2)."},
    {"__wrapped__", T_OBJECT, offsetof(OpFunction, implementation), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyGetSetDef getset[] = {
    {"num_plans", op_num_plans, nullptr, "How many plans were compiled.", nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(op_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(op_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(op_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(op_clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_repr, reinterpret_cast<void*>(op_repr)},
    {Py_tp_descr_get, reinterpret_cast<void*>(op_get)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, getset},
    {0, nullptr},
};
PyType_Spec spec = {"tandem._runtime.OpFunction", sizeof(OpFunction), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                    slots};

}  // namespace

PyObject* call_operator(OpFunction* op, Argument* arguments, int count) {
  try {
    return results_of(op, arguments, count);
  } catch (...) {
    return raised(op);
  }
}

void init_dispatch(PyObject* module) {
  OpFunctionType = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!OpFunctionType || PyModule_AddObjectRef(module, "OpFunction", reinterpret_cast<PyObject*>(OpFunctionType)) < 0)
    fail(ErrorKind::Internal, "the OpFunction type could not be made");
}

}  // namespace tandem
