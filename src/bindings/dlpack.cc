#include "bindings/dlpack.h"

#include <algorithm>
#include <memory>

#include "bindings/bindings.h"
#include "bindings/foreign.h"
#include "bindings/tensor_convert.h"
#include "check.h"
#include "program/capture.h"
#include "tensor/copy.h"
#include "tensor/move.h"

namespace nb = nanobind;

namespace tandem {
namespace {

[[noreturn]] void fail_buffer(const char* message) {
  PyErr_SetString(PyExc_BufferError, message);
  nb::raise_python_error();
}

DLDataType dlpack_type(DType dtype) {
  auto bits = static_cast<uint8_t>(8 * item_size(dtype));
  if (dtype == DType::Bool) return {kDLBool, 8, 1};
  if (dtype == DType::BFloat16) return {kDLBfloat, 16, 1};
  if (is_complex(dtype)) return {kDLComplex, bits, 1};
  if (is_floating(dtype)) return {kDLFloat, bits, 1};
  return {dtype >= DType::UInt8 ? kDLUInt : kDLInt, bits, 1};
}

DType dtype_of(DLDataType type) {
  for (int code = 0; code < kNumDTypes; ++code) {
    auto dtype = static_cast<DType>(code);
    DLDataType known = dlpack_type(dtype);
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) return dtype;
  }
  fail(ErrorKind::Type, "from_dlpack: a type of code ", int{type.code}, " with ", int{type.bits}, " bits and ",
       type.lanes, " lanes has no counterpart here\n  fix: convert it in the library that it comes from");
}

// What a capsule owns. Consumers of both versions call the deleter with the managed struct, which holds our address.
template <typename Managed>
struct Export {
  Managed managed;
  Ref<Storage> storage;
  int64_t shape[kMaxDims];
  int64_t strides[kMaxDims];

  static void destroy(Managed* managed) { delete static_cast<Export*>(managed->context); }
};

template <typename Managed>
PyObject* make_capsule(const Tensor* tensor, const char* capsule_name, PyCapsule_Destructor destructor,
                       uint64_t flags) {
  auto owned = std::make_unique<Export<Managed>>();
  materialize(tensor);
  require_host(tensor, "DLPack exchange");
  const View& view = tensor->view;
  owned->storage = Ref<Storage>::share(tensor->storage);
  std::copy_n(view.shape, view.ndim, owned->shape);
  std::copy_n(view.strides, view.ndim, owned->strides);
  owned->managed.context = owned.get();
  owned->managed.deleter = &Export<Managed>::destroy;
  if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) {
    owned->managed.major = 1;
    owned->managed.minor = 0;
    owned->managed.flags = flags;
  }
  owned->managed.tensor = {view.data, {kDLCPU, 0}, view.ndim, dlpack_type(view.dtype), owned->shape, owned->strides, 0};
  PyObject* capsule = PyCapsule_New(&owned->managed, capsule_name, destructor);
  if (!capsule) nb::raise_python_error();
  owned.release();
  return capsule;
}

constexpr const char* kName = "dltensor";
constexpr const char* kVersionedName = "dltensor_versioned";

// A consumer renames the capsule it takes; one that nobody took still owns the tensor.
template <typename Managed>
void destroy_capsule(PyObject* capsule, const char* capsule_name) {
  if (!PyCapsule_IsValid(capsule, capsule_name)) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, capsule_name));
  if (managed->deleter) managed->deleter(managed);
}

template <typename Managed>
void release_managed(void* context) {
  auto* managed = static_cast<Managed*>(context);
  if (managed->deleter) managed->deleter(managed);
}

void check_device(int type) {
  if (type != kDLCPU && type != kDLCUDAHost)
    fail(ErrorKind::Value, "from_dlpack: the memory is on a device of type ", type,
         ", not in main memory\n  fix: copy it to the CPU in the library that it comes from");
}

template <typename Managed>
Tensor* consume(PyObject* capsule, const char* name, const char* used_name) {
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  bool writable = true;
  if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) {
    if (managed->major != 1)
      fail(ErrorKind::Type, "from_dlpack: version ", managed->major, ".", managed->minor, " is not known; 1.x is");
    writable = !(managed->flags & kDLReadOnly);
  }
  const DLTensor& t = managed->tensor;
  check_device(t.device.type);
  if (t.ndim < 0 || t.ndim > kMaxDims)
    fail(ErrorKind::Shape, "from_dlpack: ", t.ndim, " axes; at most ", kMaxDims, " are supported");
  Foreign foreign;
  foreign.data = static_cast<char*>(t.data) + t.byte_offset;
  foreign.dtype = dtype_of(t.dtype);
  foreign.writable = writable;
  auto item = static_cast<int64_t>(item_size(foreign.dtype));
  Py_ssize_t shape[kMaxDims], strides[kMaxDims];
  for (int i = 0; i < t.ndim; ++i) {
    shape[i] = t.shape[i];
    if (t.strides && __builtin_mul_overflow(t.strides[i], item, &strides[i]))
      fail(ErrorKind::Value, "from_dlpack: a stride of ", t.strides[i], " elements");
  }
  foreign.set_geometry(t.ndim, shape, t.strides ? strides : nullptr, "from_dlpack: memory");
  // From here on the tensor owns what the capsule did.
  if (PyCapsule_SetName(capsule, used_name) != 0) nb::raise_python_error();
  return foreign.tensor(&release_managed<Managed>, managed);
}

Tensor* consume_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kVersionedName))
    return consume<DLManagedTensorVersioned>(capsule, kVersionedName, "used_dltensor_versioned");
  if (PyCapsule_IsValid(capsule, kName)) return consume<DLManagedTensor>(capsule, kName, "used_dltensor");
  fail(ErrorKind::Value, "from_dlpack: not a DLPack capsule, or one that was used already");
}

// Producers older than the standard of 2023 know none of the keywords.
nb::object ask_for_capsule(nb::handle object, nb::handle copy) {
  if (PyObject_HasAttrString(object.ptr(), "__dlpack_device__")) {
    nb::object device = object.attr("__dlpack_device__")();
    check_device(nb::cast<int>(nb::object(device[0])));
  }
  nb::object method = object.attr("__dlpack__");
  try {
    if (copy.is_none()) return method(nb::arg("max_version") = nb::make_tuple(1, 0));
    return method(nb::arg("max_version") = nb::make_tuple(1, 0), nb::arg("copy") = copy);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return method();
}

}  // namespace

PyObject* export_dlpack(const Tensor* tensor, PyObject* stream, PyObject* max_version, PyObject* dl_device,
                        PyObject* copy) {
  if (stream != Py_None) fail_buffer("__dlpack__: a tensor in main memory has no stream; pass stream=None");
  if (dl_device != Py_None) {
    nb::object wanted = nb::borrow(dl_device);
    if (!wanted.equal(nb::make_tuple(int{kDLCPU}, 0)))
      fail_buffer("__dlpack__: the tensor is on the CPU, device (1, 0)");
  }
  bool versioned = false;
  if (max_version != Py_None) {
    nb::object major = nb::borrow(max_version)[0];
    versioned = nb::cast<int>(major) >= 1;
  }
  TensorRef source = copy == Py_True ? (materialize(tensor), TensorRef::adopt(copy_contiguous(tensor)))
                                     : TensorRef::share(const_cast<Tensor*>(tensor));
  bool writable = source->storage->writable();
  if (versioned) {
    uint64_t flags = (writable ? 0 : kDLReadOnly) | (copy == Py_True ? kDLIsCopied : 0);
    return make_capsule<DLManagedTensorVersioned>(
        source.get(), kVersionedName,
        [](PyObject* capsule) { destroy_capsule<DLManagedTensorVersioned>(capsule, kVersionedName); }, flags);
  }
  if (!writable) fail_buffer("__dlpack__: read-only memory needs DLPack 1.0; pass max_version=(1, 0), or copy=True");
  return make_capsule<DLManagedTensor>(
      source.get(), kName, [](PyObject* capsule) { destroy_capsule<DLManagedTensor>(capsule, kName); }, 0);
}

Tensor* import_dlpack(PyObject* object, PyObject* copy) {
  TensorRef tensor;
  bool copied = false;
  if (PyCapsule_CheckExact(object)) {
    tensor = TensorRef::adopt(consume_capsule(object));
  } else {
    if (!PyObject_HasAttrString(object, "__dlpack__"))
      fail(ErrorKind::Type, "from_dlpack: ", Py_TYPE(object)->tp_name, " has no __dlpack__\n  fix: use td.tensor(...)");
    nb::object capsule = ask_for_capsule(object, copy);
    if (PyCapsule_IsValid(capsule.ptr(), kVersionedName)) {
      auto* managed = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), kVersionedName));
      copied = managed->flags & kDLIsCopied;
    }
    tensor = TensorRef::adopt(consume_capsule(capsule.ptr()));
  }
  if (copy == Py_True && !copied) return copy_contiguous(tensor.get());
  return tensor.leak();
}

void register_dlpack(nb::module_& m) {
  m.def(
      "from_dlpack",
      [](nb::object object, nb::object copy) { return TensorRef::adopt(import_dlpack(object.ptr(), copy.ptr())); },
      nb::arg("object"), nb::arg("copy") = nb::none(),
      "A tensor on the memory of any object with __dlpack__; copy=True takes a copy instead.");
}

}  // namespace tandem
