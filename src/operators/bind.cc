#include "operators/bind.h"

#include <cmath>
#include <utility>

#include "operators/aliases.h"
#include "operators/numbers.h"
#include "tensor/generator.h"
#include "tensor/size_type.h"

namespace tandem {

namespace {

int find_by_text(OpFunction* op, PyObject* name) {
  auto& parameters = *op->parameters;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (PyUnicode_Compare(parameters[i].name, name) == 0) return static_cast<int>(i);
  for (const Alias& alias : kAliases) {
    if (PyUnicode_CompareWithASCIIString(name, alias.given) != 0) continue;
    for (size_t i = 0; i < parameters.size(); ++i)
      if (PyUnicode_CompareWithASCIIString(parameters[i].name, alias.ours) == 0) return static_cast<int>(i);
  }
  return -1;
}

int find_parameter(OpFunction* op, PyObject* name) {
  auto& parameters = *op->parameters;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].name == name) return static_cast<int>(i);
  struct Known {     // names that were found by their text, such as keepdim for keepdims
    OpFunction* op;  // owned, as is
    PyObject* name;
    int parameter;
  };
  constexpr size_t kKnown = 64;
  static Known known[kKnown];  // GIL
  Known& last = known[(reinterpret_cast<uintptr_t>(op) ^ reinterpret_cast<uintptr_t>(name)) / 16 % kKnown];
  if (last.op == op && last.name == name) return last.parameter;
  const int found = find_by_text(op, name);
  if (found < 0 || !PyUnicode_CHECK_INTERNED(name)) return found;
  const Known before = std::exchange(last, {op, name, found});
  Py_INCREF(op);
  Py_INCREF(name);
  Py_XDECREF(before.op);
  Py_XDECREF(before.name);
  return found;
}

[[noreturn]] void type_error(OpFunction* op, const std::string& text) {
  PyErr_Format(PyExc_TypeError, "%U: %s", op->name, text.c_str());
  throw PythonError{};
}

std::string utf8(PyObject* s) {
  return PyUnicode_AsUTF8(s);
}

bool is_loose_int(PyObject* o) {
  return PyLong_Check(o) || PyIndex_Check(o);
}

void add_converted(OpFunction* op, const BoundCall& call, const Parameter& parameter, PyObject* o, Arguments& out);

void add_big_integer(OpFunction* op, const BoundCall& call, const Parameter& parameter, PyObject* o, Arguments& out);

void add_number_or_tensor(OpFunction* op, const BoundCall& call, const Parameter& parameter, PyObject* o,
                          Arguments& out, bool converted = false) {
  if (is_tensor(o)) {
    if (reinterpret_cast<Tensor*>(o)->in_parts) [[unlikely]]
      throw InParts{};
    Argument& a = out.add();
    a.kind = Argument::Kind::Tensor;
    a.tensor = reinterpret_cast<Tensor*>(o);
  } else if (PyFloat_CheckExact(o)) {
    Argument& a = out.add();
    a.kind = Argument::Kind::Float;
    a.object = o;  // for who asks which object a number came from (capture/call_record.h); may be gone by then
    a.real = PyFloat_AS_DOUBLE(o);
  } else if (PyBool_Check(o)) {
    Argument& a = out.add();
    a.kind = Argument::Kind::Bool;
    a.integer = 0;
    a.truth = o == Py_True;
  } else if (PyLong_CheckExact(o)) {
    int overflow = 0;
    int64_t v = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow) return add_big_integer(op, call, parameter, o, out);
    Argument& a = out.add();
    a.kind = Argument::Kind::Integer;
    a.integer = v;
  } else if (PyComplex_CheckExact(o)) {
    Argument& a = out.add();
    a.kind = Argument::Kind::Complex;
    a.real = PyComplex_RealAsDouble(o);
    a.imaginary = PyComplex_ImagAsDouble(o);
  } else if (!converted) {
    add_converted(op, call, parameter, o, out);
  } else {
    type_error(op, utf8(parameter.name) + " must be a tensor or a number");
  }
}

// What is neither a tensor nor a number that fits 64 bits, as Python makes one of it.
void add_converted(OpFunction* op, const BoundCall& call, const Parameter& parameter, PyObject* o, Arguments& out) {
  PyObject* args[] = {op->name, parameter.name, o};
  PyObject* made = PyObject_Vectorcall(callbacks.convert, args, 3, nullptr);
  if (!made) throw PythonError{};
  if (made == Py_NotImplemented) {
    Py_DECREF(made);
    throw SymbolicArgument{};
  }
  out.own(made);
  add_number_or_tensor(op, call, parameter, made, out, true);
}

// A Python int beyond int64 is what the tensors it meets can hold: a float among floats, itself among uint64.
void add_big_integer(OpFunction* op, const BoundCall& call, const Parameter& parameter, PyObject* o, Arguments& out) {
  bool meets_float = false, meets_uint64 = false;
  const Tensor* cannot = nullptr;  // a tensor of integers that has no room for it
  auto meet = [&](PyObject* other) {
    if (!is_tensor(other)) return;
    const Tensor* t = reinterpret_cast<Tensor*>(other);
    if (is_floating(t->view.dtype) || is_complex(t->view.dtype))
      meets_float = true;
    else if (t->view.dtype == DType::UInt64)
      meets_uint64 = true;
    else if (t->view.dtype != DType::Bool)
      cannot = t;
  };
  auto& parameters = *op->parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    PyObject* value = call.values[i];
    if (takes_number(parameters[i].kind)) {
      meet(value);
    } else if (parameters[i].kind == ParameterKind::Tensors && (PyTuple_Check(value) || PyList_Check(value))) {
      for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(value); ++k) meet(PySequence_Fast_GET_ITEM(value, k));
    }
  }
  if (cannot && !meets_float && !meets_uint64) {  // a tensor of positions may be there too
    fail_fit(op, parameter, o, cannot->view.dtype);
  }
  if (!meets_float) return add_converted(op, call, parameter, o, out);
  const double value = PyLong_AsDouble(o);
  if (value == -1 && PyErr_Occurred()) throw PythonError{};
  Argument& a = out.add();
  a.kind = Argument::Kind::Float;
  a.real = value;
}

void add_int(OpFunction* op, const Parameter& parameter, PyObject* o, Arguments& out) {
  if (!PyLong_CheckExact(o) && (!PyIndex_Check(o) || PyBool_Check(o)))
    type_error(op, utf8(parameter.name) + " must be made of integers, not " + Py_TYPE(o)->tp_name);
  Py_ssize_t v = PyNumber_AsSsize_t(o, PyExc_OverflowError);
  if (v == -1 && PyErr_Occurred()) throw PythonError{};
  Argument& a = out.add();
  a.kind = Argument::Kind::Int;
  a.integer = v;
}

// Static arguments are compared by value where they are plain Python; NumPy's numbers become that.
PyObject* plain_static(OpFunction* op, const Parameter& parameter, PyObject* o, Arguments& out) {
  if (o == Py_None || PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyUnicode_Check(o)) return o;
  if (is_plain_tuple(o) || PyList_CheckExact(o)) {
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    PyObject* changed = nullptr;  // a tuple, once an item had to be
    for (Py_ssize_t i = 0; i < n; ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(o, i);
      PyObject* plain = plain_static(op, parameter, item, out);
      if (plain == item && !changed) continue;
      if (!changed) {
        changed = PyTuple_New(n);
        if (!changed) throw PythonError{};
        out.own(changed);
        for (Py_ssize_t j = 0; j < i; ++j) PyTuple_SET_ITEM(changed, j, Py_NewRef(PySequence_Fast_GET_ITEM(o, j)));
      }
      PyTuple_SET_ITEM(changed, i, Py_NewRef(plain));
    }
    return changed ? changed : o;
  }
  if (is_tensor(o)) type_error(op, utf8(parameter.name) + " is a tensor; it must be a plain Python value");
  PyObject* made = nullptr;
  if (PyFloat_Check(o))
    made = PyFloat_FromDouble(PyFloat_AS_DOUBLE(o));
  else if (PyIndex_Check(o))
    made = PyNumber_Index(o);
  else
    return o;
  if (!made) throw PythonError{};
  out.own(made);
  return made;
}

Argument& add_count(Arguments& out, int64_t n) {
  Argument& a = out.add();
  a.kind = Argument::Kind::Count;
  a.integer = n;
  return a;
}

}  // namespace

void bind(OpFunction* op, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames, BoundCall& call) {
  auto& parameters = *op->parameters;
  int n = static_cast<int>(parameters.size());
  call.reserve(n);
  for (int i = 0; i < n; ++i) call.values[i] = nullptr;
  Py_ssize_t positional = nargs < op->num_positional ? nargs : op->num_positional;
  if (op->variadic >= 0 && nargs > op->variadic && (nargs > op->variadic + 1 || is_loose_int(args[op->variadic])) &&
      is_loose_int(args[op->variadic])) {
    call.loose = args + op->variadic;
    call.num_loose = nargs - op->variadic;
    positional = op->variadic;
    nargs = op->variadic;
  }
  if (nargs > op->num_positional) {
    PyErr_Format(PyExc_TypeError, "%U() takes %d positional arguments but %zd were given", op->name, op->num_positional,
                 nargs);
    throw PythonError{};
  }
  for (Py_ssize_t i = 0; i < positional; ++i) call.values[i] = args[i];
  if (kwnames) {
    Py_ssize_t num_keywords = PyTuple_GET_SIZE(kwnames);
    Py_ssize_t first = call.loose ? (call.loose - args) + call.num_loose : nargs;
    for (Py_ssize_t k = 0; k < num_keywords; ++k) {
      PyObject* name = PyTuple_GET_ITEM(kwnames, k);
      int i = find_parameter(op, name);
      if (i < 0) {
        PyErr_Format(PyExc_TypeError, "%U() got an unexpected keyword argument '%U'", op->name, name);
        throw PythonError{};
      }
      if (call.values[i] || (call.loose && i == op->variadic)) {
        PyErr_Format(PyExc_TypeError, "%U() got multiple values for argument '%U'", op->name, parameters[i].name);
        throw PythonError{};
      }
      call.values[i] = args[first + k];
    }
  }
  if (call.loose && parameters[op->variadic].kind == ParameterKind::Static) {
    call.gathered = PyTuple_New(call.num_loose);
    if (!call.gathered) throw PythonError{};
    for (Py_ssize_t k = 0; k < call.num_loose; ++k) PyTuple_SET_ITEM(call.gathered, k, Py_NewRef(call.loose[k]));
    call.values[op->variadic] = call.gathered;
    call.loose = nullptr;
  }
  for (int i = 0; i < n; ++i) {
    if (call.values[i] || (call.loose && i == op->variadic)) continue;
    call.values[i] = parameters[i].default_value;
    if (!call.values[i]) {
      PyErr_Format(PyExc_TypeError, "%U() missing required argument '%U'", op->name, parameters[i].name);
      throw PythonError{};
    }
  }
}

// Whether no axes are all axes, as in PyTorch's reductions: Python knows, once somebody has asked for PyTorch's
// results.
static bool means_all(OpFunction* op, const Parameter& parameter, PyObject* o) {
  if (!(PyTuple_Check(o) && PyTuple_GET_SIZE(o) == 0) && !(PyList_Check(o) && PyList_GET_SIZE(o) == 0)) return false;
  PyObject* args[] = {reinterpret_cast<PyObject*>(op), parameter.name};
  PyObject* answer = PyObject_Vectorcall(callbacks.axes_first, args, 2, nullptr);
  if (!answer) throw PythonError{};
  const bool all = answer == Py_True;
  Py_DECREF(answer);
  return all;
}

void flatten(OpFunction* op, const BoundCall& call, Arguments& out) {
  auto& parameters = *op->parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    PyObject* o = call.values[i];
    switch (parameter.kind) {
      case ParameterKind::Tensor:
        add_number_or_tensor(op, call, parameter, o, out);
        break;
      case ParameterKind::Divisor:
        add_number_or_tensor(op, call, parameter, o, out);
        check_divisor(out);
        check_factor(op, call, static_cast<int>(i), out.data()[out.size() - 1]);
        break;
      case ParameterKind::OptionalFactor:
        if (o == Py_None) {
          out.add().kind = Argument::Kind::None;
          break;
        }
        [[fallthrough]];
      case ParameterKind::Factor:
        add_number_or_tensor(op, call, parameter, o, out);
        check_factor(op, call, static_cast<int>(i), out.data()[out.size() - 1]);
        break;
      case ParameterKind::OptionalWritten:
        if (o == Py_None) {
          out.add().kind = Argument::Kind::None;
          break;
        }
        [[fallthrough]];
      case ParameterKind::Written:
        add_number_or_tensor(op, call, parameter, o, out);
        check_written(op, call, static_cast<int>(i), out.data()[out.size() - 1]);
        break;
      case ParameterKind::OptionalTensor:
        if (o == Py_None)
          out.add().kind = Argument::Kind::None;
        else
          add_number_or_tensor(op, call, parameter, o, out);
        break;
      case ParameterKind::Tensors: {
        if (!PyTuple_Check(o) && !PyList_Check(o))
          type_error(op, utf8(parameter.name) + " must be a list or tuple of tensors");
        Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
        add_count(out, n);
        for (Py_ssize_t k = 0; k < n; ++k) {
          PyObject* item = PySequence_Fast_GET_ITEM(o, k);
          if (item == Py_None)
            out.add().kind = Argument::Kind::None;
          else
            add_number_or_tensor(op, call, parameter, item, out);
        }
        break;
      }
      case ParameterKind::Static: {
        if (callbacks.axes_first && means_all(op, parameter, o)) [[unlikely]]
          o = Py_None;
        PyObject* plain = plain_static(op, parameter, o, out);
        Argument& a = out.add();
        a.kind = Argument::Kind::Static;
        a.object = plain;
        break;
      }
      case ParameterKind::Int:
        if (o == Py_None)
          out.add().kind = Argument::Kind::None;
        else
          add_int(op, parameter, o, out);
        break;
      case ParameterKind::Ints:
        if (call.loose && static_cast<int>(i) == op->variadic) {
          add_count(out, call.num_loose);
          for (Py_ssize_t k = 0; k < call.num_loose; ++k) add_int(op, parameter, call.loose[k], out);
        } else if (o == Py_None) {
          out.add().kind = Argument::Kind::None;
        } else if (PyTuple_Check(o) || PyList_Check(o)) {
          Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
          add_count(out, n);
          for (Py_ssize_t k = 0; k < n; ++k) add_int(op, parameter, PySequence_Fast_GET_ITEM(o, k), out);
        } else {
          add_int(op, parameter, o, out);
        }
        break;
      case ParameterKind::Generator: {
        Generator* generator = o == Py_None ? default_generator() : as_generator(o);
        if (!generator) type_error(op, utf8(parameter.name) + " must be a td.Generator or None");
        Argument& seed = out.add();
        seed.kind = Argument::Kind::Seed;
        seed.stream = Argument::Stream::Seed;
        seed.object = reinterpret_cast<PyObject*>(generator);
        seed.integer = static_cast<int64_t>(generator->seed);
        Argument& offset = out.add();
        offset.kind = Argument::Kind::Offset;
        offset.stream = Argument::Stream::Offset;
        offset.object = reinterpret_cast<PyObject*>(generator);
        offset.integer = static_cast<int64_t>(generator->offset);
        break;
      }
    }
  }
}

bool has_parts(OpFunction* op, const BoundCall& call) {
  const auto in_parts = [](PyObject* o) { return o && is_tensor(o) && reinterpret_cast<Tensor*>(o)->in_parts; };
  for (size_t i = 0; i < op->parameters->size(); ++i) {
    PyObject* value = call.values[i];
    if (in_parts(value)) return true;
    if ((*op->parameters)[i].kind != ParameterKind::Tensors || !(PyTuple_Check(value) || PyList_Check(value))) continue;
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(value); ++k)
      if (in_parts(PySequence_Fast_GET_ITEM(value, k))) return true;
  }
  return false;
}

PyObject* call_in_parts(OpFunction* op, const BoundCall& call) {
  const int n = static_cast<int>(op->parameters->size());
  PyObject* values = PyTuple_New(n);
  if (!values) return nullptr;
  for (int i = 0; i < n; ++i) {
    if (call.loose && i == op->variadic) {
      PyObject* loose = PyTuple_New(call.num_loose);
      for (Py_ssize_t k = 0; loose && k < call.num_loose; ++k) PyTuple_SET_ITEM(loose, k, Py_NewRef(call.loose[k]));
      PyTuple_SET_ITEM(values, i, loose);
    } else {
      PyTuple_SET_ITEM(values, i, Py_NewRef(call.values[i]));
    }
  }
  PyObject* arguments[] = {reinterpret_cast<PyObject*>(op), values};
  PyObject* result = PyObject_Vectorcall(callbacks.in_parts, arguments, 2, nullptr);
  Py_DECREF(values);
  return result;
}

PyObject* call_implementation(OpFunction* op, const BoundCall& call) {
  auto& parameters = *op->parameters;
  PyObject* args[kMaxParameters];
  PyObject* loose = nullptr;
  int n = static_cast<int>(parameters.size());
  for (int i = 0; i < n; ++i) args[i] = call.values[i];
  if (call.loose) {
    loose = PyTuple_New(call.num_loose);
    if (!loose) return nullptr;
    for (Py_ssize_t k = 0; k < call.num_loose; ++k) {
      Py_INCREF(call.loose[k]);
      PyTuple_SET_ITEM(loose, k, call.loose[k]);
    }
    args[op->variadic] = loose;
  }
  PyObject* names = nullptr;
  int keywords = n - op->num_positional;
  if (keywords > 0) {
    names = PyTuple_New(keywords);
    for (int i = 0; i < keywords; ++i) {
      PyObject* name = parameters[op->num_positional + i].name;
      Py_INCREF(name);
      PyTuple_SET_ITEM(names, i, name);
    }
  }
  PyObject* result = PyObject_Vectorcall(op->implementation, args, op->num_positional, names);
  Py_XDECREF(names);
  Py_XDECREF(loose);
  return result;
}

}  // namespace tandem
