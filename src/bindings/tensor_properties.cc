// Attributes of Tensor that are read from its fields.
#include <algorithm>

#include "bindings/tensor_convert.h"
#include "bindings/tensor_type.h"
#include "capture/capture.h"
#include "raise.h"
#include "tensor/node.h"
#include "tensor/size_type.h"

namespace nb = nanobind;

namespace tandem {

void take_data(Tensor* t, Tensor* source) {
  if (!t->is_leaf() || (t->extra && t->extra->base))
    fail(ErrorKind::Autograd, "set_data: only leaves that are no views can be given other data");
  if (t->requires_grad && !is_floating(source->view.dtype) && !is_complex(source->view.dtype))
    fail(ErrorKind::Type, "set_data: the tensor requires grad and cannot hold ", name(source->view.dtype));
  if (t->in_parts || source->in_parts) fail(ErrorKind::Type, "set_data: sparse and nested tensors have no memory");
  if (!t->storage->sharded()) materialize(t);
  if (!source->storage->sharded()) materialize(source);
  t->storage->bump_version();  // what records saved of it is not its data any more
  source->storage->retain();
  Storage* old = std::exchange(t->storage, source->storage);
  t->view = source->view;
  old->release();
}

namespace {

Tensor* as_tensor(PyObject* self) {
  return reinterpret_cast<Tensor*>(self);
}

PyObject* get_shape(PyObject* self, void*) {
  const View& view = as_tensor(self)->view;
  PyObject* sizes = new_sizes(view.ndim);
  for (int i = 0; sizes && i < view.ndim; ++i) {
    PyObject* size = PyLong_FromLongLong(view.shape[i]);
    if (!size) Py_CLEAR(sizes);
    if (sizes) PyTuple_SET_ITEM(sizes, i, size);
  }
  return sizes;
}

PyObject* get_strides(PyObject* self, void*) {
  const View& view = as_tensor(self)->view;
  return tuple_from_sizes(view.ndim, view.strides);
}

PyObject* get_dtype(PyObject* self, void*) {
  return guarded<PyObject*>(nullptr, [&] { return Py_NewRef(dtype_object(as_tensor(self)->view.dtype)); });
}

PyObject* get_device(PyObject* self, void*) {
  return Py_NewRef(device_object(as_tensor(self)->storage->device()));
}
PyObject* get_ndim(PyObject* self, void*) {
  return PyLong_FromLong(as_tensor(self)->view.ndim);
}
PyObject* get_size(PyObject* self, void*) {
  return PyLong_FromLongLong(as_tensor(self)->view.numel());
}

PyObject* get_itemsize(PyObject* self, void*) {
  return PyLong_FromSize_t(item_size(as_tensor(self)->view.dtype));
}

PyObject* get_nbytes(PyObject* self, void*) {
  const View& view = as_tensor(self)->view;
  return PyLong_FromSize_t(view.numel() * item_size(view.dtype));
}

PyObject* get_version(PyObject* self, void*) {
  return PyLong_FromUnsignedLong(as_tensor(self)->storage->version_for(as_tensor(self)->unwatched));
}
PyObject* get_is_leaf(PyObject* self, void*) {
  return PyBool_FromLong(as_tensor(self)->is_leaf());
}
PyObject* get_inference(PyObject* self, void*) {
  return PyBool_FromLong(as_tensor(self)->inference);
}
PyObject* get_writable(PyObject* self, void*) {
  return PyBool_FromLong(as_tensor(self)->storage->writable());
}

PyObject* get_data(PyObject* self, void*) {
  return guarded<PyObject*>(nullptr, [&] {
    Tensor* made = new_of_type(TensorType, as_tensor(self));
    made->unwatched = true;
    return reinterpret_cast<PyObject*>(made);
  });
}

// Values of the same shape and dtype are copied into the tensor's memory, so that its views see them; a leaf takes any
// others with their memory.
int set_data(PyObject* self, PyObject* value, void*) {
  return guarded(-1, [&]() -> int {
    Tensor* t = as_tensor(self);
    if (value == nullptr || !is_tensor(value)) fail(ErrorKind::Type, "x.data takes a tensor");
    Tensor* v = as_tensor(value);
    const View &have = t->view, &given = v->view;
    bool fits = have.dtype == given.dtype &&
                std::equal(have.shape, have.shape + have.ndim, given.shape, given.shape + given.ndim);
    bool same = fits && have.data == given.data &&
                std::equal(have.strides, have.strides + have.ndim, given.strides, given.strides + given.ndim);
    if (same && t->storage == v->storage) return 0;  // x.data += y has written it already
    if (!fits) {
      if (active_capture || !t->is_leaf() || (t->extra && t->extra->base))
        fail(
            ErrorKind::Autograd,
            "x.data takes values of x's shape and dtype here, which are copied into it: only a leaf that is no view, "
            "outside of compiled functions, can have other memory\n  fix: make a new tensor, or a new nn.Parameter, of "
            "the other shape or dtype");
      take_data(t, v);
      return 0;
    }
    nb::object data = nb::steal(get_data(self, nullptr));
    nb::object source = nb::steal(get_data(value, nullptr));
    data.attr("copy_")(source);
    return 0;
  });
}

PyObject* get_requires_grad(PyObject* self, void*) {
  return PyBool_FromLong(as_tensor(self)->requires_grad);
}

int set_requires_grad(PyObject* self, PyObject* value, void*) {
  return guarded(-1, [&] {
    Tensor* t = as_tensor(self);
    if (value != Py_True && value != Py_False) fail(ErrorKind::Type, "requires_grad must be True or False");
    bool wanted = value == Py_True;
    if (wanted == t->requires_grad) return 0;
    if (!t->is_leaf())
      fail(ErrorKind::Autograd,
           "requires_grad of a tensor that an operator made cannot be changed\n  fix: use x.detach() for one without "
           "gradient");
    if (wanted && !is_floating(t->view.dtype) && !is_complex(t->view.dtype))
      fail(ErrorKind::Autograd, "only floating-point tensors can require gradients; this one is ", name(t->view.dtype),
           "\n  fix: convert it first: x.float()");
    if (wanted && t->inference)
      fail(ErrorKind::Autograd,
           "this tensor was made in inference mode and takes no part in differentiation\n"
           "  fix: make a copy of it outside: x.clone()");
    t->requires_grad = wanted;
    return 0;
  });
}

PyObject* get_grad(PyObject* self, void*) {
  AutogradExtra* extra = as_tensor(self)->extra;
  return Py_NewRef(extra && extra->grad ? extra->grad : Py_None);
}

int set_grad(PyObject* self, PyObject* value, void*) {
  return guarded(-1, [&] {
    Tensor* t = as_tensor(self);
    if (!value || value == Py_None) {
      if (t->extra) Py_CLEAR(t->extra->grad);
      return 0;
    }
    if (!is_tensor(value)) fail(ErrorKind::Type, "grad must be a Tensor or None, got ", Py_TYPE(value)->tp_name);
    if (value == self) fail(ErrorKind::Value, "a tensor cannot be its own grad");
    const View &mine = t->view, &other = as_tensor(value)->view;
    if (mine.ndim != other.ndim || !std::equal(mine.shape, mine.shape + mine.ndim, other.shape))
      fail(ErrorKind::Shape, "grad has shape ", format_shape(other.ndim, other.shape), " and the tensor ",
           format_shape(mine.ndim, mine.shape), "; they must be equal");
    if (mine.dtype != other.dtype)
      fail(ErrorKind::Type, "grad is ", name(other.dtype), " and the tensor ", name(mine.dtype),
           "; they must be equal");
    if (!t->extra) t->extra = new AutogradExtra;
    if (active_capture) active_capture->note_rebinding(self, nullptr, t->extra->grad);
    Py_XSETREF(t->extra->grad, Py_NewRef(value));
    return 0;
  });
}

PyObject* get_dict(PyObject* self, void* context) {
  return PyObject_GenericGetDict(self, context);
}
int set_dict(PyObject* self, PyObject* value, void* context) {
  return PyObject_GenericSetDict(self, value, context);
}

}  // namespace

PyGetSetDef tensor_properties[] = {
    {"shape", get_shape, nullptr, "Sizes of the axes, a tuple of ints.", nullptr},
    {"dtype", get_dtype, nullptr, "Element type.", nullptr},
    {"device", get_device, nullptr, "Where the memory is.", nullptr},
    {"ndim", get_ndim, nullptr, "Number of axes.", nullptr},
    {"size", get_size, nullptr, "Number of elements.", nullptr},
    {"strides", get_strides, nullptr, "Step of each axis, in elements.", nullptr},
    {"itemsize", get_itemsize, nullptr, "Bytes of one element.", nullptr},
    {"nbytes", get_nbytes, nullptr, "Bytes of all elements.", nullptr},
    {"data", get_data, set_data, "The same memory without history: in-place changes are seen by both.", nullptr},
    {"requires_grad", get_requires_grad, set_requires_grad, "Whether operators on this tensor are recorded.", nullptr},
    {"is_leaf", get_is_leaf, nullptr, "Whether no recorded operator made this tensor.", nullptr},
    {"grad", get_grad, set_grad, "The gradient that backward() has summed here, or None.", nullptr},
    {"_version", get_version, nullptr, "How many in-place changes the memory has seen; x.data counts its own.",
     nullptr},
    {"_inference", get_inference, nullptr, "Whether the tensor was made in inference mode.", nullptr},
    {"_writable", get_writable, nullptr, "Whether the memory may be changed.", nullptr},
    {"__dict__", get_dict, set_dict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace tandem
