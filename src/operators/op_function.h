// The callable behind every operator: binds arguments, finds the plan for their signature, runs it, records it on the
// tape.
#pragma once
#include <Python.h>

#include <memory>
#include <string>
#include <vector>

#include "callbacks.h"
#include "modes.h"
#include "operators/signature.h"
#include "plan/plan.h"
#include "small_vector.h"

namespace tandem {

enum class ParameterKind : uint8_t {
  Tensor,           // a tensor or a Python number
  Factor,           // the same, but where the tensors are integers the number must fit them
  OptionalFactor,   // or None
  Divisor,          // a factor, but where the other operands are integers the number must not be 0
  Written,          // the same, but where it is written into integers the number must fit them
  OptionalTensor,   // or None
  OptionalWritten,  // both
  Tensors,          // a list or tuple of them
  Static,           // a Python value that the plan is specialised to
  Int,              // an integer that the plan computes with
  Ints,             // one or several such integers
  Generator,        // a random generator or None for the default one
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
  inline static uint64_t num_cleared = 0;  // how often Python has cleared one: calls may have other plans since (GIL)

 private:
  void rehash(size_t capacity);
  void drop_oldest();
  std::vector<std::unique_ptr<CacheEntry>> slots_;
  size_t count_ = 0;
  uint64_t finds_ = 0;
};

// Of tensors, and the axis along which they are joined.
enum class Joins : int { No = 0, Concat = 1, Stack = 2 };

struct OpFunction {
  PyObject_HEAD vectorcallfunc vectorcall;
  std::vector<Parameter>* parameters;
  PlanCache* cache;
  PyObject* name;            // str
  PyObject* implementation;  // the Python function, for tracing
  PyObject* attributes;      // __dict__: __doc__, __signature__, ...
  int num_positional;
  int variadic;   // index of the Ints parameter that takes loose positional ints, or -1
  int writes;     // in place: how many of its first arguments take the results
  void* starts;   // sequences of deferred calls that begin with this operator (autobatch/sequences.h), or null
  int constants;  // from this argument on they are weights that stay the same (Note [Constant weights]), or -1
  Joins joins;    // whether its result is its tensors one after the other
};

extern PyTypeObject* OpFunctionType;
void init_dispatch(PyObject* module);

// Runs `op` on bound arguments. Sets no Python error: throws PythonError when Python code raised, Error otherwise.
using TensorList = SmallVector<TensorRef, 4>;
TensorList dispatch(OpFunction* op, Argument* arguments, int count, bool* returns_tuple);

// The same for Python: the result, or null with an exception set.
PyObject* call_operator(OpFunction* op, Argument* arguments, int count);

// The plan that serves these arguments, compiled if there is none; ready to run if `prepared`. For callers that run
// plans themselves, without gradients and capture.
Ref<Plan> find_plan(OpFunction* op, Argument* arguments, int count, bool prepared = true);

}  // namespace tandem
