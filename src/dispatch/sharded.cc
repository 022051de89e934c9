#include "dispatch/sharded.h"

#include "callbacks.h"
#include "dispatch/results.h"
#include "dispatch/writes.h"
#include "modes.h"
#include "operators/describe.h"
#include "tensor/generator.h"

namespace tandem::dispatching {

namespace {

struct Owned {  // a new reference, or the exception that there is none
  PyObject* object;
  explicit Owned(PyObject* o) : object(o) {
    if (!o) throw PythonError{};
  }
  Owned(const Owned&) = delete;
  ~Owned() { Py_DECREF(object); }
};

}  // namespace

TensorList dispatch_sharded(OpFunction* op, Argument* arguments, int count, bool* returns_tuple) {
  std::vector<TensorRef> clones;
  for (int k = 0; k < op->writes; ++k) prepare_write(arguments, count, k, op->writes, clones);
  const Owned spec(PyList_New(count)), tensors(PyList_New(count));
  for (int i = 0; i < count; ++i) {
    const bool is_tensor = arguments[i].kind == Argument::Kind::Tensor;
    PyObject* item = describe_argument(arguments[i]);
    if (!item) throw PythonError{};
    PyList_SET_ITEM(spec.object, i, item);
    PyList_SET_ITEM(tensors.object, i,
                    Py_NewRef(is_tensor ? reinterpret_cast<PyObject*>(arguments[i].tensor) : Py_None));
  }
  note_writes(arguments, op->writes);
  PyObject* args[] = {reinterpret_cast<PyObject*>(op), spec.object, tensors.object};
  const Owned made(PyObject_Vectorcall(callbacks.sharded, args, 3, nullptr));
  PyObject *list = nullptr, *is_tuple = nullptr;
  long long advance = 0;
  if (!PyArg_ParseTuple(made.object, "OOL", &list, &is_tuple, &advance)) throw PythonError{};
  for (int i = 0; i < count; ++i)
    if (arguments[i].kind == Argument::Kind::Seed)
      reinterpret_cast<Generator*>(arguments[i].object)->offset += static_cast<uint64_t>(advance);
  const Owned items(PySequence_Fast(list, "results of a sharded call"));
  TensorList outputs;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.object); ++i)
    outputs.push_back(TensorRef::share(reinterpret_cast<Tensor*>(PySequence_Fast_GET_ITEM(items.object, i))));
  *returns_tuple = is_tuple == Py_True;
  if (anomaly_detection) [[unlikely]]
    check_outputs(op, outputs);
  return outputs;
}

}  // namespace tandem::dispatching
