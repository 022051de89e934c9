#include "bindings/dlpack.h"

#include <algorithm>
#include <memory>

#include "bindings/bindings.h"
#include "bindings/foreign.h"
#include "bindings/tensor_convert.h"
#include "capture/capture.h"
#include "check.h"
#include "device/cuda/device.h"
#include "device/cuda/launcher.h"
#include "device/cuda/memory.h"
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
  owned->managed.tensor = {view.data,    dlpack_device(tensor), view.ndim, dlpack_type(view.dtype),
                           owned->shape, owned->strides,        0};
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

// Our number of a device: 0 for host memory, k for cuda:(k - 1).
int check_device(int type, int id) {
  if (type == kDLCPU || type == kDLCUDAHost) return 0;
  if (type == kDLCUDA) {
    cuda::properties(id);  // throws if there is no such device
    return id + 1;
  }
  fail(ErrorKind::Value, "from_dlpack: the memory is on a device of type ", type,
       ", neither in main memory nor on a CUDA device\n  fix: copy it to the CPU in the library that it comes from");
}

// Streams as the standard numbers them: 1 is the legacy default stream, which the driver calls so too; larger numbers
// are handles.
int64_t stream_number(int device) {
  auto handle = reinterpret_cast<int64_t>(cuda::current_stream(device));
  return handle ? handle : 1;
}

// What the consumer queues on its stream from now on finds what was queued here; its memory is not handed out again
// before that stream is done with it.
void order_streams(const Tensor* tensor, PyObject* wanted) {
  cuda::share_streams();
  const int device = tensor->storage->device() - 1;
  int64_t number = 1;
  if (wanted != Py_None) {
    number = PyLong_AsLongLong(wanted);
    if (number == -1 && PyErr_Occurred()) nb::raise_python_error();
  }
  if (number == 0 || number < -1)
    fail_buffer("__dlpack__: stream must be -1 (no ordering), 1 or 2 (the default streams), or a stream's handle");
  if (number == -1) return;
  auto consumer = number == 1 ? nullptr : reinterpret_cast<cuda::Stream>(number);
  if (consumer == cuda::current_stream(device)) return;
  cuda::activate(device);
  const cuda::Driver& d = cuda::driver();
  cuda::Event event = nullptr;
  constexpr unsigned kNoTiming = 2;
  cuda::check(d.event_create(&event, kNoTiming), "making an event");
  cuda::Status status = d.event_record(event, cuda::current_stream(device));
  if (status == 0) status = d.stream_wait_event(consumer, event, 0);
  d.event_destroy(event);
  cuda::check(status, "ordering streams");
  if (void* block = tensor->storage->block()) cuda::record_stream(static_cast<cuda::Block*>(block), consumer);
}

TensorRef copied(const Tensor* tensor) {
  materialize(tensor);
  if (tensor->storage->on_host()) return TensorRef::adopt(copy_contiguous(tensor));
  return TensorRef::adopt(move_tensor(const_cast<Tensor*>(tensor), tensor->storage->device(), false));
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
  const int device = check_device(t.device.type, t.device.id);
  if (t.ndim < 0 || t.ndim > kMaxDims)
    fail(ErrorKind::Shape, "from_dlpack: ", t.ndim, " axes; at most ", kMaxDims, " are supported");
  Foreign foreign;
  foreign.data = static_cast<char*>(t.data) + t.byte_offset;
  foreign.dtype = dtype_of(t.dtype);
  foreign.writable = writable;
  foreign.device = device;
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
  nb::object stream = nb::none();  // of host memory
  if (PyObject_HasAttrString(object.ptr(), "__dlpack_device__")) {
    nb::object place = object.attr("__dlpack_device__")();
    const int device = check_device(nb::cast<int>(nb::object(place[0])), nb::cast<int>(nb::object(place[1])));
    if (device) {
      cuda::share_streams();
      cuda::activate(device - 1);
      stream = nb::int_(stream_number(device - 1));
    }
  }
  nb::object method = object.attr("__dlpack__");
  nb::dict arguments;
  if (!stream.is_none()) arguments["stream"] = stream;
  try {
    nb::dict all;
    all.update(arguments);
    all["max_version"] = nb::make_tuple(1, 0);
    if (!copy.is_none()) all["copy"] = copy;
    return method(**all);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return method(**arguments);
}

}  // namespace

DLDevice dlpack_device(const Tensor* tensor) {
  const int device = tensor->storage->device();
  return device ? DLDevice{kDLCUDA, device - 1} : DLDevice{kDLCPU, 0};
}

PyObject* export_dlpack(const Tensor* tensor, PyObject* stream, PyObject* max_version, PyObject* dl_device,
                        PyObject* copy) {
  materialize(tensor);
  const DLDevice here = dlpack_device(tensor);
  if (here.type == kDLCPU && stream != Py_None)
    fail_buffer("__dlpack__: a tensor in main memory has no stream; pass stream=None");
  TensorRef source = TensorRef::share(const_cast<Tensor*>(tensor));
  bool is_copy = false;
  if (dl_device != Py_None) {
    nb::object wanted = nb::borrow(dl_device);
    if (!wanted.equal(nb::make_tuple(here.type, here.id))) {
      if (here.type == kDLCPU) fail_buffer("__dlpack__: the tensor is on the CPU, device (1, 0)");
      if (!wanted.equal(nb::make_tuple(int{kDLCPU}, 0)) || copy == Py_False)
        fail_buffer(
            "__dlpack__: the tensor is on a CUDA device; a copy on the CPU, (1, 0), is all that can be had else");
      source = TensorRef::adopt(move_tensor(const_cast<Tensor*>(tensor), 0, false));
      is_copy = true;
    }
  }
  bool versioned = false;
  if (max_version != Py_None) {
    nb::object major = nb::borrow(max_version)[0];
    versioned = nb::cast<int>(major) >= 1;
  }
  if (copy == Py_True && !is_copy) {
    source = copied(tensor);
    is_copy = true;
  }
  if (!source->storage->on_host()) order_streams(source.get(), stream);
  bool writable = source->storage->writable();
  if (versioned) {
    uint64_t flags = (writable ? 0 : kDLReadOnly) | (is_copy ? kDLIsCopied : 0);
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
  bool was_copied = false;
  if (PyCapsule_CheckExact(object)) {
    tensor = TensorRef::adopt(consume_capsule(object));
  } else {
    if (!PyObject_HasAttrString(object, "__dlpack__"))
      fail(ErrorKind::Type, "from_dlpack: ", Py_TYPE(object)->tp_name, " has no __dlpack__\n  fix: use td.tensor(...)");
    nb::object capsule = ask_for_capsule(object, copy);
    if (PyCapsule_IsValid(capsule.ptr(), kVersionedName)) {
      auto* managed = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), kVersionedName));
      was_copied = managed->flags & kDLIsCopied;
    }
    tensor = TensorRef::adopt(consume_capsule(capsule.ptr()));
  }
  if (copy == Py_True && !was_copied) return copied(tensor.get()).leak();
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
