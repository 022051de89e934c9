// The buffer protocol (PEP 3118), both ways: memoryview(x), and tensors on bytearray, array.array, mmap, ...
#include <memory>
#include <string_view>

#include "bindings/bindings.h"
#include "bindings/foreign.h"
#include "bindings/numpy_types.h"
#include "bindings/tensor_convert.h"
#include "bindings/tensor_type.h"
#include "capture/capture.h"
#include "check.h"
#include "raise.h"
#include "tensor/move.h"

namespace nb = nanobind;

namespace tandem {
namespace {

static_assert(sizeof(long) == 8 && sizeof(int) == 4);
// NumPy's int64 is 'l' here; 'q' would give its other 64-bit type.
constexpr const char* kFormats[kNumDTypes] = {"?", "b", "h",     "i", "l", "B",  "H", "I",
                                              "L", "e", nullptr, "f", "d", "Zf", "Zd"};

struct Exported {  // lives as long as the Py_buffer
  Ref<Storage> storage;
  Py_ssize_t shape[kMaxDims];
  Py_ssize_t strides[kMaxDims];
};

int refuse(Py_buffer* view, const char* message) {
  view->obj = nullptr;
  PyErr_SetString(PyExc_BufferError, message);
  return -1;
}

bool is_column_major(const View& view) {
  int64_t expected = 1;
  for (int i = 0; i < view.ndim; ++i) {
    if (view.shape[i] != 1 && view.strides[i] != expected) return false;
    expected *= view.shape[i];
  }
  return true;
}

bool find_dtype(std::string_view format, Py_ssize_t size, DType* dtype) {
  if (format.starts_with('@') || format.starts_with('=') || format.starts_with('<')) format.remove_prefix(1);
  if (format == "?") {
    *dtype = DType::Bool;
  } else if (format == "e" || format == "f" || format == "d") {
    *dtype = size == 2 ? DType::Float16 : size == 4 ? DType::Float32 : DType::Float64;
  } else if (format == "Zf" || format == "Zd") {
    *dtype = size == 8 ? DType::Complex64 : DType::Complex128;
  } else if (format.size() == 1 && std::string_view("bhilqn").find(format[0]) != std::string_view::npos) {
    *dtype = size == 1 ? DType::Int8 : size == 2 ? DType::Int16 : size == 4 ? DType::Int32 : DType::Int64;
  } else if (format.size() == 1 && std::string_view("BHILQN").find(format[0]) != std::string_view::npos) {
    *dtype = size == 1 ? DType::UInt8 : size == 2 ? DType::UInt16 : size == 4 ? DType::UInt32 : DType::UInt64;
  } else {
    return false;
  }
  return item_size(*dtype) == static_cast<size_t>(size);
}

void release_buffer(void* context) {
  auto* buffer = static_cast<Py_buffer*>(context);
  PyBuffer_Release(buffer);
  delete buffer;
}

}  // namespace

int get_tensor_buffer(PyObject* self, Py_buffer* view, int flags) {
  return guarded(-1, [&] {
    view->obj = nullptr;
    const Tensor* tensor = reinterpret_cast<const Tensor*>(self);
    if (tensor->in_parts) return refuse(view, "a sparse or nested tensor has no memory of its own: x.to_dense() has");
    materialize(tensor);
    require_host(tensor, "the buffer protocol");
    const View& v = tensor->view;
    const char* format = kFormats[static_cast<int>(v.dtype)];
    if (!format)
      return refuse(view, "bfloat16 is no type of the buffer protocol; view it as int16, or convert it to float32");
    if (tensor->requires_grad)
      return refuse(view,
                    "a tensor that requires gradients has no buffer, since what happens there is not recorded; "
                    "use x.detach()");
    if ((flags & PyBUF_WRITABLE) && !tensor->storage->writable())
      return refuse(view, "the tensor's memory is read-only");
    bool rows = v.is_contiguous();
    if ((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS && !rows)
      return refuse(view, "the tensor is not contiguous");
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && !is_column_major(v))
      return refuse(view, "the tensor is not contiguous in column-major order");
    if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS && !rows && !is_column_major(v))
      return refuse(view, "the tensor is not contiguous");
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !rows)
      return refuse(view, "the tensor is not contiguous, and the caller does not understand strides");
    auto item = static_cast<Py_ssize_t>(item_size(v.dtype));
    auto exported = std::make_unique<Exported>();
    exported->storage = Ref<Storage>::share(tensor->storage);
    for (int i = 0; i < v.ndim; ++i) {
      exported->shape[i] = v.shape[i];
      exported->strides[i] = v.strides[i] * item;
    }
    view->obj = Py_NewRef(self);
    view->buf = v.data;
    view->len = v.numel() * item;
    view->readonly = !tensor->storage->writable();
    view->itemsize = item;
    view->format = flags & PyBUF_FORMAT ? const_cast<char*>(format) : nullptr;
    view->ndim = v.ndim;
    view->shape = flags & PyBUF_ND ? exported->shape : nullptr;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? exported->strides : nullptr;
    view->suboffsets = nullptr;
    view->internal = exported.release();
    return 0;
  });
}

void release_tensor_buffer(PyObject*, Py_buffer* view) {
  delete static_cast<Exported*>(view->internal);
}

Tensor* tensor_from_buffer(PyObject* object) {
  auto buffer = std::make_unique<Py_buffer>();
  // Writable if the exporter allows it.
  if (PyObject_GetBuffer(object, buffer.get(), PyBUF_FULL) != 0) {
    PyErr_Clear();
    if (PyObject_GetBuffer(object, buffer.get(), PyBUF_FULL_RO) != 0) nb::raise_python_error();
  }
  struct Guard {
    std::unique_ptr<Py_buffer>& buffer;
    ~Guard() {
      if (buffer) PyBuffer_Release(buffer.get());
    }
  } guard{buffer};
  const char* format = buffer->format ? buffer->format : "B";
  Foreign foreign;
  if (!find_dtype(format, buffer->itemsize, &foreign.dtype))
    fail(ErrorKind::Type, "a buffer of format '", format, "' with ", buffer->itemsize,
         " bytes an element has no counterpart here\n  fix: convert it with NumPy first");
  if (buffer->suboffsets) {
    for (int i = 0; i < buffer->ndim; ++i) {
      if (buffer->suboffsets[i] >= 0)
        fail(ErrorKind::Type, "a buffer of pointers cannot share its memory\n  fix: copy it first");
    }
  }
  foreign.data = static_cast<char*>(buffer->buf);
  foreign.writable = !buffer->readonly;
  Py_ssize_t flat = buffer->itemsize ? buffer->len / buffer->itemsize : 0;
  bool plain = !buffer->shape && buffer->ndim > 0;  // an exporter that knows of bytes only
  foreign.set_geometry(plain ? 1 : buffer->ndim, plain ? &flat : buffer->shape, buffer->strides, "a buffer");
  Py_buffer* owned = buffer.release();
  return foreign.tensor(&release_buffer, owned);
}

void register_buffer(nb::module_& m) {
  m.def(
      "from_buffer", [](nb::object object) { return TensorRef::adopt(tensor_from_buffer(object.ptr())); },
      nb::arg("object"), "A tensor on the memory of any object with the buffer protocol; read-only where that is.");
}

}  // namespace tandem
