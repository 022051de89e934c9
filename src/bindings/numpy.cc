// Arrays of NumPy, sharing memory both ways.
#include <cstring>

#include "bindings/bindings.h"
#include "bindings/foreign.h"
#include "bindings/numpy_types.h"
#include "bindings/tensor_convert.h"
#include "capture/capture.h"
#include "check.h"
#include "tensor/move.h"

namespace nb = nanobind;

namespace tandem {
namespace {

struct NumPy {
  PyTypeObject* array = nullptr;
  PyTypeObject* scalar = nullptr;
  PyObject* dtypes[kNumDTypes] = {};  // filled as needed
};

// Null while nobody has imported NumPy: then no object can be one of its kind.
const NumPy* numpy_if_loaded() {
  static NumPy* numpy = nullptr;
  if (numpy) return numpy;
  PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), "numpy");
  if (!module || !PyObject_HasAttrString(module, "generic")) return nullptr;
  numpy = new NumPy;
  numpy->array = reinterpret_cast<PyTypeObject*>(nb::handle(module).attr("ndarray").ptr());
  numpy->scalar = reinterpret_cast<PyTypeObject*>(nb::handle(module).attr("generic").ptr());
  Py_INCREF(numpy->array);
  Py_INCREF(numpy->scalar);
  return numpy;
}

// What __array_struct__ leads to; a layout that NumPy has promised to keep.
struct ArrayInterface {
  int two;  // sanity check
  int ndim;
  char typekind;
  int itemsize;
  int flags;
  Py_intptr_t* shape;
  Py_intptr_t* strides;  // in bytes
  void* data;
  PyObject* descr;
};
constexpr int kNotSwapped = 0x200, kWriteable = 0x400;

bool find_dtype(char kind, int itemsize, DType* dtype) {
  static constexpr struct {
    char kind;
    int itemsize;
    DType dtype;
  } known[] = {
      {'b', 1, DType::Bool},      {'i', 1, DType::Int8},        {'i', 2, DType::Int16},   {'i', 4, DType::Int32},
      {'i', 8, DType::Int64},     {'u', 1, DType::UInt8},       {'u', 2, DType::UInt16},  {'u', 4, DType::UInt32},
      {'u', 8, DType::UInt64},    {'f', 2, DType::Float16},     {'f', 4, DType::Float32}, {'f', 8, DType::Float64},
      {'c', 8, DType::Complex64}, {'c', 16, DType::Complex128},
  };
  for (auto& entry : known) {
    if (entry.kind == kind && entry.itemsize == itemsize) {
      *dtype = entry.dtype;
      return true;
    }
  }
  return false;
}

DType dtype_of_array(nb::handle array, const ArrayInterface& interface) {
  DType dtype;
  nb::object numpy_dtype = array.attr("dtype");
  // ml_dtypes registers bfloat16 with a kind of its own, so it goes by name.
  if (interface.itemsize == 2 && nb::cast<std::string>(nb::str(numpy_dtype.attr("name"))) == "bfloat16")
    return DType::BFloat16;
  if (!find_dtype(interface.typekind, interface.itemsize, &dtype))
    fail(ErrorKind::Type, "a NumPy array of dtype ", nb::str(numpy_dtype).c_str(),
         " has no counterpart here\n  fix: convert it first: array.astype(np.float32)");
  if (!(interface.flags & kNotSwapped))
    fail(ErrorKind::Type, "a NumPy array of dtype ", nb::str(numpy_dtype.attr("str")).c_str(),
         " has its bytes in the order of another machine\n  fix: array.astype(array.dtype.newbyteorder('='))");
  return dtype;
}

// The buffer that arrays made from a tensor have as their base: the tensor's whole storage, as bytes.
struct Memory {
  PyObject_HEAD Storage* storage;
};
PyTypeObject* MemoryType = nullptr;

void dealloc_memory(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  reinterpret_cast<Memory*>(self)->storage->release();
  type->tp_free(self);
  Py_DECREF(type);
}

int get_memory_buffer(PyObject* self, Py_buffer* view, int flags) {
  Storage* storage = reinterpret_cast<Memory*>(self)->storage;
  return PyBuffer_FillInfo(view, self, storage->data(), static_cast<Py_ssize_t>(storage->bytes()), !storage->writable(),
                           flags);
}

// The storage behind an array that we made (to_numpy), or that NumPy made from a tensor's buffer (np.asarray).
Storage* storage_of_base(PyObject* base) {
  if (Py_TYPE(base) == MemoryType) return reinterpret_cast<Memory*>(base)->storage;
  if (!PyMemoryView_Check(base)) return nullptr;
  PyObject* exporter = PyMemoryView_GET_BUFFER(base)->obj;
  return exporter && is_tensor(exporter) ? reinterpret_cast<Tensor*>(exporter)->storage : nullptr;
}

void make_memory_type() {
  static PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>("Memory of a tensor, lent to an array.")},
      {Py_tp_dealloc, reinterpret_cast<void*>(&dealloc_memory)},
      {Py_bf_getbuffer, reinterpret_cast<void*>(&get_memory_buffer)},
      {0, nullptr},
  };
  static PyType_Spec spec = {"tandem._runtime.Memory", sizeof(Memory), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  MemoryType = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!MemoryType) nb::raise_python_error();
}

}  // namespace

bool is_numpy_array(PyObject* object) {
  const NumPy* numpy = numpy_if_loaded();
  return numpy && PyObject_TypeCheck(object, numpy->array);
}

bool is_numpy_value(PyObject* object) {
  const NumPy* numpy = numpy_if_loaded();
  return numpy && (PyObject_TypeCheck(object, numpy->array) || PyObject_TypeCheck(object, numpy->scalar));
}

Tensor* tensor_from_numpy(PyObject* array) {
  if (!is_numpy_array(array)) fail(ErrorKind::Type, "expected a NumPy array, got ", Py_TYPE(array)->tp_name);
  nb::object capsule = nb::handle(array).attr("__array_struct__");
  auto* interface = static_cast<ArrayInterface*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if (!interface) nb::raise_python_error();
  TD_CHECK(interface->two == 2);
  Foreign foreign;
  foreign.data = static_cast<char*>(interface->data);
  foreign.dtype = dtype_of_array(array, *interface);
  foreign.writable = interface->flags & kWriteable;
  foreign.set_geometry(interface->ndim, interface->shape, interface->strides, "a NumPy array");
  nb::object base = nb::handle(array).attr("base");
  while (is_numpy_array(base.ptr())) base = base.attr("base");
  // One of ours comes home: same storage, same version counter.
  Storage* storage = storage_of_base(base.ptr());
  if (storage && storage->writable() == foreign.writable) {
    storage->retain();
    return foreign.tensor_on(storage);
  }
  return foreign.tensor([](void* owner) { Py_DECREF(static_cast<PyObject*>(owner)); }, Py_NewRef(array));
}

PyObject* numpy_from_tensor(const Tensor* tensor) {
  nb::module_ module = nb::module_::import_("numpy");
  auto* numpy = const_cast<NumPy*>(numpy_if_loaded());
  TD_CHECK(numpy);
  materialize(tensor);
  require_host(tensor, "numpy()");
  const View& view = tensor->view;
  PyObject*& dtype = numpy->dtypes[static_cast<int>(view.dtype)];
  if (!dtype) dtype = nb::object(nb::handle(dtype_object(view.dtype)).attr("numpy")).release().ptr();

  nb::object memory = nb::steal(MemoryType->tp_alloc(MemoryType, 0));
  if (!memory.is_valid()) nb::raise_python_error();
  reinterpret_cast<Memory*>(memory.ptr())->storage = tensor->storage;
  tensor->storage->retain();

  int64_t strides[kMaxDims];
  for (int i = 0; i < view.ndim; ++i) strides[i] = view.strides[i] * static_cast<int64_t>(item_size(view.dtype));
  nb::object shape = nb::steal(tuple_from_sizes(view.ndim, view.shape));
  nb::object steps = nb::steal(tuple_from_sizes(view.ndim, strides));
  nb::object offset = nb::steal(PyLong_FromLongLong(view.numel() ? view.data - tensor->storage->data() : 0));
  PyObject* arguments[] = {shape.ptr(), dtype, memory.ptr(), offset.ptr(), steps.ptr()};
  PyObject* array = PyObject_Vectorcall(reinterpret_cast<PyObject*>(numpy->array), arguments, 5, nullptr);
  if (!array) nb::raise_python_error();
  return array;
}

void register_numpy(nb::module_& m) {
  make_memory_type();
  m.def(
      "from_numpy", [](nb::object array) { return TensorRef::adopt(tensor_from_numpy(array.ptr())); }, nb::arg("array"),
      "A tensor on the memory of a NumPy array; changes are seen by both.");
  m.def(
      "to_numpy", [](TensorRef tensor) { return nb::steal(numpy_from_tensor(tensor.get())); }, nb::arg("tensor"),
      "A NumPy array on the memory of a tensor; changes are seen by both.");
}

}  // namespace tandem
