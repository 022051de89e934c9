#include "operators/numbers.h"

#include <algorithm>
#include <cmath>

namespace tandem {

namespace {

// Whether a number can be written into integers of `size` bytes. Negative ones wrap in unsigned types, as in PyTorch.
bool fits(const Argument& number, size_t size, bool is_unsigned) {
  const int bits = static_cast<int>(8 * size);
  if (number.kind == Argument::Kind::Integer) {
    const int64_t v = number.integer;
    if (is_unsigned) return bits == 64 || (v < (int64_t{1} << bits) && v > -(int64_t{1} << bits));
    return bits == 64 || (v >= -(int64_t{1} << (bits - 1)) && v < (int64_t{1} << (bits - 1)));
  }
  if (number.kind != Argument::Kind::Float) return true;
  const double whole = std::trunc(number.real), limit = std::ldexp(1.0, is_unsigned ? bits : bits - 1);
  return whole < limit && whole >= (is_unsigned ? 0 : -limit);  // no NaN is
}

bool is_unsigned(DType dtype) {
  return dtype == DType::UInt8 || dtype == DType::UInt16 || dtype == DType::UInt32 || dtype == DType::UInt64;
}

}  // namespace

bool takes_number(ParameterKind kind) {
  return kind == ParameterKind::Tensor || kind == ParameterKind::Divisor || kind == ParameterKind::Written ||
         kind == ParameterKind::OptionalTensor || kind == ParameterKind::OptionalWritten ||
         kind == ParameterKind::Factor || kind == ParameterKind::OptionalFactor;
}

// Tensors are checked by the plan (check_divisor); a number is not worth a step of it.
void check_divisor(Arguments& out) {
  const Argument& divisor = out.data()[out.size() - 1];
  const bool is_zero = (divisor.kind == Argument::Kind::Integer && divisor.integer == 0) ||
                       (divisor.kind == Argument::Kind::Bool && !divisor.truth);
  if (!is_zero || out.data()[0].kind != Argument::Kind::Tensor) return;
  const Tensor* x = out.data()[0].tensor;
  if (is_floating(x->view.dtype) || is_complex(x->view.dtype) || !x->storage->on_host()) return;
  fail(ErrorKind::Division, kDividedByZero);
}

// Has Python say that a number does not fit integers of this type.
void fail_fit(OpFunction* op, const Parameter& parameter, PyObject* number, DType dtype) {
  PyObject* args[] = {op->name, parameter.name, number, PyUnicode_FromString(name(dtype))};
  if (!args[3]) throw PythonError{};
  Py_XDECREF(PyObject_Vectorcall(callbacks.convert, args, 4, nullptr));  // raises
  Py_DECREF(args[3]);
  throw PythonError{};
}

// A number meets the elements that it is written into: those of the first argument, or of what is written beside it.
void check_written(OpFunction* op, const BoundCall& call, int position, const Argument& number) {
  if (number.kind != Argument::Kind::Integer && number.kind != Argument::Kind::Float) return;
  auto& parameters = *op->parameters;
  PyObject* into = call.values[0];
  bool beside = false;
  for (int i = 0; i < static_cast<int>(parameters.size()); ++i) {
    if (i == position || parameters[i].kind != ParameterKind::Written) continue;
    beside = true;
    into = call.values[i];
  }
  if (!is_tensor(into)) return;
  const DType dtype = reinterpret_cast<Tensor*>(into)->view.dtype;
  if (dtype == DType::Bool || is_floating(dtype) || is_complex(dtype)) return;
  if (beside && number.kind == Argument::Kind::Float) return;  // both become floats
  if (!fits(number, item_size(dtype), is_unsigned(dtype)))
    fail_fit(op, parameters[position], call.values[position], dtype);
}

// A number is an operand: where all tensors are integers, it becomes one of what they promote to.
void check_factor(OpFunction* op, const BoundCall& call, int position, const Argument& number) {
  if (number.kind != Argument::Kind::Integer) return;
  auto& parameters = *op->parameters;
  size_t size[2] = {0, 0};  // of the widest signed and unsigned integers
  DType widest = DType::Bool;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!takes_number(parameters[i].kind) || !is_tensor(call.values[i])) continue;
    const DType dtype = reinterpret_cast<Tensor*>(call.values[i])->view.dtype;
    if (is_floating(dtype) || is_complex(dtype)) return;
    if (dtype == DType::Bool) continue;
    size_t& known = size[is_unsigned(dtype)];
    known = std::max(known, item_size(dtype));
    if (widest == DType::Bool || item_size(dtype) > item_size(widest)) widest = dtype;
  }
  if (widest == DType::Bool) return;
  const bool mixed = size[0] && size[1];
  const size_t bytes = mixed ? std::max(size[0], std::min<size_t>(8, 2 * size[1])) : std::max(size[0], size[1]);
  if (!fits(number, bytes, !size[0])) fail_fit(op, parameters[position], call.values[position], widest);
}

}  // namespace tandem
