// From a Python call to bound, flattened arguments.
#pragma once
#include <cstddef>
#include <new>

#include "operators/op_function.h"

namespace tandem {

// The arguments of one call. Small calls stay on the stack.
class Arguments {
 public:
  Argument& add() {
    if (count_ < kInline && many_.empty()) return *new (first() + count_++) Argument{};
    if (many_.empty()) many_.assign(first(), first() + count_);
    ++count_;
    return many_.emplace_back();
  }
  Argument* data() { return many_.empty() ? first() : many_.data(); }
  int size() const { return count_; }
  void own(PyObject* o) { owned_.push_back(o); }  // converted arguments live as long as the call
  ~Arguments() {
    for (PyObject* o : owned_) Py_DECREF(o);
  }
  Arguments() = default;
  Arguments(const Arguments&) = delete;

 private:
  static constexpr int kInline = 12;
  Argument* first() { return reinterpret_cast<Argument*>(inline_); }
  alignas(Argument) std::byte inline_[kInline * sizeof(Argument)];  // filled one by one: all of it would be felt
  std::vector<Argument> many_;
  std::vector<PyObject*> owned_;
  int count_ = 0;
};

inline constexpr int kMaxParameters = 256;

struct BoundCall {
  PyObject** values = inline_values;  // borrowed
  PyObject* const* loose = nullptr;   // loose positional ints of the variadic parameter
  Py_ssize_t num_loose = 0;
  PyObject* gathered = nullptr;  // loose positional values of a static variadic parameter, as a tuple (owned)
  BoundCall() = default;
  BoundCall(const BoundCall&) = delete;
  void reserve(int count) {
    if (count <= kUsual) return;
    many.reset(new PyObject*[count]);
    values = many.get();
  }
  ~BoundCall() { Py_XDECREF(gathered); }

 private:
  static constexpr int kUsual = 32;
  PyObject* inline_values[kUsual];
  std::unique_ptr<PyObject*[]> many;
};

// Thrown by flatten: an argument is a symbolic tensor of a graph, so the call becomes a node of it instead of running.
struct SymbolicArgument {};

// Thrown by flatten: an argument is in parts (Note [Tensors in parts]).
struct InParts {};

// All throw PythonError with the Python exception set.
void bind(OpFunction* op, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames, BoundCall& call);
void flatten(OpFunction* op, const BoundCall& call, Arguments& out);
PyObject* call_implementation(OpFunction* op, const BoundCall& call);  // new reference or null
bool has_parts(OpFunction* op, const BoundCall& call);                 // whether flatten would throw InParts
PyObject* call_in_parts(OpFunction* op, const BoundCall& call);        // new reference or null

}  // namespace tandem
