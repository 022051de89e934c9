// The callable behind every operator: binds arguments, finds the plan for their signature, runs it, records it on the
// tape.
#pragma once
#include <Python.h>

#include <memory>
#include <string>
#include <vector>

#include "dispatch/signature.h"
#include "program/plan.h"
#include "small_vector.h"

namespace tandem {

enum class ParameterKind : uint8_t {
  Tensor,          // a tensor or a Python number
  Divisor,         // the same, but where the other operands are integers the number must not be 0
  OptionalTensor,  // or None
  Tensors,         // a list or tuple of them
  Static,          // a Python value that the plan is specialised to
  Int,             // an integer that the plan computes with
  Ints,            // one or several such integers
  Generator,       // a random generator or None for the default one
};

struct Parameter {
  PyObject* name;  // interned
  ParameterKind kind;
  PyObject* default_value;  // null: required
  bool keyword_only;
};

struct CacheEntry {
  uint64_t hash = 0;
  std::vector<uint8_t> signature;
  PyObject* keep = nullptr;         // static arguments that went by identity
  std::vector<Ref<Plan>> variants;  // same signature, different guards; most recently used first
  uint64_t used = 0;                // when it was found last, in finds of its cache
};

// Plans by signature. There may be any number of signatures, as every static number makes one; those used last are
// kept.
class PlanCache {
 public:
  ~PlanCache() { clear(); }
  CacheEntry* find(uint64_t hash, const Signature& signature);
  CacheEntry* insert(uint64_t hash, const Signature& signature);
  void clear();
  size_t size() const { return count_; }
  size_t num_plans() const;

 private:
  void rehash(size_t capacity);
  void drop_oldest();
  std::vector<std::unique_ptr<CacheEntry>> slots_;
  size_t count_ = 0;
  uint64_t finds_ = 0;
};

struct OpFunction {
  PyObject_HEAD vectorcallfunc vectorcall;
  std::vector<Parameter>* parameters;
  PlanCache* cache;
  PyObject* name;            // str
  PyObject* implementation;  // the Python function, for tracing
  PyObject* attributes;      // __dict__: __doc__, __signature__, ...
  int num_positional;
  int variadic;  // index of the Ints parameter that takes loose positional ints, or -1
  int writes;    // in place: how many of its first arguments take the results
};

extern PyTypeObject* OpFunctionType;
void init_dispatch(PyObject* module);

// Runs `op` on bound arguments. Sets no Python error: throws PythonError when Python code raised, Error otherwise.
using TensorList = SmallVector<TensorRef, 4>;
TensorList dispatch(OpFunction* op, Argument* arguments, int count, bool* returns_tuple);

// The plan that serves these arguments, compiled if there is none; ready to run. For callers that run plans themselves,
// without gradients and capture.
Ref<Plan> find_plan(OpFunction* op, Argument* arguments, int count);

struct PythonError {};  // a Python exception is set

// Callbacks that the Python side registers.
struct Callbacks {
  PyObject* compile = nullptr;          // (op, spec list) -> Plan
  PyObject* compile_capture = nullptr;  // (calls, leaves, numbers, ints, outputs, writes, symbolic, report) -> Plan
  PyObject* convert = nullptr;          // (op name, parameter name, object) -> Tensor or number
  PyObject* clone = nullptr;            // OpFunction
  PyObject* add = nullptr;              // OpFunction
  PyObject* add_ = nullptr;             // OpFunction, in place
  PyObject* rebase = nullptr;           // (view): the base's history after an in-place write through a view
  PyObject* refresh_view = nullptr;     // (view): the view's history after a write through its base
  PyObject* check_finite = nullptr;     // (op name, tensors, where)
  PyObject* extras = nullptr;           // (op, args, kwargs): a call with out= and the like, which all operators take
  PyObject* join_backward = nullptr;    // (backward function, that of the record before it) -> OpFunction or None
  PyObject* load_kernels = nullptr;     // (kernels, device) -> [(function, threads x, threads y, extra, shared)]
};
extern Callbacks callbacks;

// What operators depend on besides their arguments. Device: where those without tensors among their arguments run, 0
// the CPU, k cuda:(k - 1). Autocast: 0 off, else 1 + the code of the dtype for products, plus 16 for cuda rather than
// the CPU.
struct CallMode {
  uint8_t device = 0;
  uint8_t autocast = 0;
};
extern thread_local CallMode call_mode;

// The device of the innermost `with td.device(...)`, or -1: captured calls tell their graphs, nothing depends on it.
extern thread_local int8_t device_scope;

// Set while Python functions are traced in this thread: calls then go straight to the Python implementation.
extern thread_local int tracing_depth;

// Around calls of Python code that traces: an interrupt may come between its entering a trace and its noting that it
// has to leave it.
struct KeepTracingDepth {
  const int depth = tracing_depth;
  ~KeepTracingDepth() { tracing_depth = depth; }
};

}  // namespace tandem
