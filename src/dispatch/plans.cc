#include "dispatch/plans.h"

#include "capture/capture.h"
#include "check.h"
#include "dispatch/writes.h"
#include "modes.h"
#include "operators/describe.h"
#include "profile/profile.h"
#include "tensor/default_dtype.h"

namespace tandem::dispatching {

static constexpr size_t kMaxVariants = 64;

static Ref<Plan> compile(OpFunction* op, Argument* arguments, int count) {
  PyObject* spec = PyList_New(count);
  if (!spec) throw PythonError{};
  for (int i = 0; i < count; ++i) {
    PyObject* item = describe_argument(arguments[i]);
    if (!item) {
      Py_DECREF(spec);
      throw PythonError{};
    }
    PyList_SET_ITEM(spec, i, item);
  }
  const profile::Scope compiling(profile::Kind::Compile, profile::recording() ? PyUnicode_AsUTF8(op->name) : "");
  const KeepTracingDepth keep;
  const NotDeferred now;
  const NotObserved alone(active_capture && active_capture->record);
  PyObject* args[] = {reinterpret_cast<PyObject*>(op), spec};
  PyObject* result = PyObject_Vectorcall(callbacks.compile, args, 2, nullptr);
  Py_DECREF(spec);
  if (!result) throw PythonError{};
  Ref<Plan> plan = plan_from_python(result);
  Py_DECREF(result);
  if (!plan) throw PythonError{};
  return plan;
}

void encode(Argument* arguments, int count, Signature& signature) {
  for (int i = 0; i < count; ++i) {
    const Argument& a = arguments[i];
    switch (a.kind) {
      case Argument::Kind::Tensor:
        signature.tensor(a.tensor, wants_grad(a.tensor));
        break;
      case Argument::Kind::Float:
        signature.byte('F');
        break;
      case Argument::Kind::Complex:
        signature.byte('C');
        break;
      case Argument::Kind::Integer:
        signature.byte('I');
        break;
      case Argument::Kind::Bool:
        signature.byte('B');
        break;
      case Argument::Kind::None:
        signature.byte('n');
        break;
      case Argument::Kind::Static:
        signature.object(a.object);
        break;
      case Argument::Kind::Int:
        signature.byte('D');
        break;
      case Argument::Kind::Count:
        signature.byte('#');
        signature.value(a.integer);
        break;
      case Argument::Kind::Seed:
        signature.byte('R');
        break;
      case Argument::Kind::Offset:
        break;
    }
  }
  if (call_mode.device | call_mode.autocast | call_mode.axes_first) [[unlikely]] {
    signature.byte('@');
    signature.value(call_mode);
  }
  if (default_float != DType::Float32) [[unlikely]] {
    signature.byte('f');
    signature.byte(static_cast<char>(default_float));
  }
}

static PyObject* keep_statics(Argument* arguments, int count) {
  PyObject* kept = nullptr;
  for (int i = 0; i < count; ++i) {
    if (arguments[i].kind != Argument::Kind::Static) continue;
    if (!kept) kept = PyList_New(0);
    if (kept) PyList_Append(kept, arguments[i].object);
  }
  return kept;
}

Ref<Plan> compile_for(OpFunction* op, Argument* arguments, int count, const Signature& signature, uint64_t hash,
                      const InputView* inputs) {
  Ref<Plan> plan = compile(op, arguments, count);
  PlanRun run(*plan, inputs);
  if (!run.guards_hold()) {
    if (run.overflowed()) fail(ErrorKind::Memory, "out of memory: sizes of this call do not fit 64 bits");
    TD_CHECK(false, "the new plan of ", PyUnicode_AsUTF8(op->name), " does not accept the call it was made for");
  }
  CacheEntry* entry = op->cache->find(hash, signature);  // compiling runs Python, which may have called this operator
  if (!entry) {
    entry = op->cache->insert(hash, signature);
    entry->keep = keep_statics(arguments, count);
  }
  if (entry->variants.size() >= kMaxVariants) entry->variants.pop_back();
  entry->variants.insert(entry->variants.begin(), plan);
  return plan;
}

}  // namespace tandem::dispatching
