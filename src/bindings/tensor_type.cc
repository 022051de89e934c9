// The Python type tandem.Tensor. It is not immutable: tandem/ops attaches methods to it.
#include "bindings/tensor_type.h"
#include "autograd/record.h"
#include "modes.h"

#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "bindings/bindings.h"
#include "bindings/tensor_convert.h"
#include "capture/capture.h"
#include "memory/fresh.h"
#include "raise.h"
#include "tensor/size_type.h"
#include "tensor/tensor_object.h"

namespace nb = nanobind;

namespace tandem {

void register_convert(nb::module_& m);
void register_operators(nb::module_& m);

namespace {

PyObject* refuse_new(PyTypeObject* type, PyObject*, PyObject*) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    fail(ErrorKind::Type, type->tp_name,
         " is not made by calling it\n  fix: use td.tensor(data), td.zeros(shape), ...");
  });
}

PyMemberDef members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(Tensor, attributes), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Tensor, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

void make_type(nb::module_& m) {
  std::vector<PyType_Slot> slots = {
      {Py_tp_doc,
       const_cast<char*>("A strided array on reference-counted memory; made by td.tensor and other functions.")},
      {Py_tp_new, reinterpret_cast<void*>(&refuse_new)},
      {Py_tp_dealloc, reinterpret_cast<void*>(&dealloc_tensor)},
      {Py_tp_traverse, reinterpret_cast<void*>(&traverse_tensor)},
      {Py_tp_clear, reinterpret_cast<void*>(&clear_tensor)},
      {Py_tp_members, members},
      {Py_tp_getset, tensor_properties},
      {Py_tp_methods, tensor_methods},
      {Py_bf_getbuffer, reinterpret_cast<void*>(&get_tensor_buffer)},
      {Py_bf_releasebuffer, reinterpret_cast<void*>(&release_tensor_buffer)},
  };
  add_operator_slots(slots);
  slots.push_back({0, nullptr});
  PyType_Spec spec = {"tandem.Tensor", sizeof(Tensor), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                      slots.data()};
  PyObject* type = PyType_FromSpec(&spec);
  if (!type) nb::raise_python_error();
  TensorType = reinterpret_cast<PyTypeObject*>(type);
  PyObject* size = make_size_type();
  if (!size) nb::raise_python_error();
  m.attr("Size") = nb::handle(size);
  // NumPy leaves a mixed operation to the operand of higher priority.
  nb::handle(type).attr("__array_priority__") = 1000;
  m.attr("Tensor") = nb::handle(type);
}

}  // namespace

void register_tensor(nb::module_& m) {
  make_type(m);
  register_convert(m);
  register_operators(m);
  m.def(
      "make_subclass",
      [](nb::type_object type, TensorRef data) {
        auto* cls = reinterpret_cast<PyTypeObject*>(type.ptr());
        if (!PyType_IsSubtype(cls, TensorType)) fail(ErrorKind::Type, cls->tp_name, " is not a subclass of Tensor");
        return TensorRef::adopt(new_of_type(cls, data.get()));
      },
      nb::arg("type"), nb::arg("data"),
      "An object of a subclass of Tensor on the memory of `data`, without its history; for __new__ of the subclass.");
  m.def(
      "same_as_subclass",
      [](nb::type_object type, TensorRef result) {
        auto* cls = reinterpret_cast<PyTypeObject*>(type.ptr());
        if (!PyType_IsSubtype(cls, TensorType)) fail(ErrorKind::Type, cls->tp_name, " is not a subclass of Tensor");
        TensorRef made = TensorRef::adopt(new_of_type(cls, result.get()));
        made->inference = result->inference;
        if (result->history) set_history(made.get(), result->history, result->output_index);
        if (result->extra && result->extra->base) {
          AutogradExtra& extra = extra_of(made.get());
          extra.base = Py_NewRef(result->extra->base);
          extra.history_version = result->extra->history_version;
        }
        return made;
      },
      nb::arg("type"), nb::arg("result"),
      "An object of a subclass of Tensor that is the same result of the same record as `result`, which nobody else "
      "holds.");
  m.def(
      "make_in_parts",
      [](nb::type_object type, nb::object dtype, nb::object shape, int device) {
        auto* cls = reinterpret_cast<PyTypeObject*>(type.ptr());
        if (!PyType_IsSubtype(cls, TensorType)) fail(ErrorKind::Type, cls->tp_name, " is not a subclass of Tensor");
        Sizes sizes = sizes_from_object(shape.ptr(), "shape");
        return TensorRef::adopt(new_in_parts(cls, dtype_from_object(dtype.ptr()), sizes.count, sizes.values, device));
      },
      nb::arg("type"), nb::arg("dtype"), nb::arg("shape"), nb::arg("device"),
      "An object of a subclass of Tensor that stands for a tensor without having its memory; operators hand it to "
      "Python (Note [Tensors in parts]).");
  m.def(
      "set_data", [](TensorRef tensor, TensorRef source) { take_data(tensor.get(), source.get()); }, nb::arg("tensor"),
      nb::arg("source"),
      "Gives a leaf the memory, shape and dtype of another tensor; it stays the same object for everyone who holds "
      "it.");
  m.def(
      "empty",
      [](nb::object shape, nb::object dtype, int device) {
        Sizes sizes = sizes_from_object(shape.ptr(), "shape");
        return TensorRef::adopt(new_contiguous(dtype_from_object(dtype.ptr()), sizes.count, sizes.values, device));
      },
      nb::arg("shape"), nb::arg("dtype"), nb::arg("device") = 0,
      "A contiguous tensor whose contents are undefined, on the CPU (0) or cuda:(device - 1).");
  m.def(
      "zeros",
      [](nb::object shape, nb::object dtype) {
        Sizes sizes = sizes_from_object(shape.ptr(), "shape");
        const DType kind = dtype_from_object(dtype.ptr());
        int64_t strides[kMaxDims], step = 1;
        for (int i = sizes.count - 1; i >= 0; --i) {
          strides[i] = step;
          step *= std::max<int64_t>(sizes.values[i], 1);
        }
        Storage* storage = Storage::allocate(checked_bytes(kind, sizes.count, sizes.values));
        if (!latest_block_is_zero()) std::memset(storage->data(), 0, storage->bytes());
        return TensorRef::adopt(new_tensor(storage, storage->data(), kind, sizes.count, sizes.values, strides));
      },
      nb::arg("shape"), nb::arg("dtype"),
      "A contiguous tensor of zeros on the CPU. Memory that comes from the system is not written.");
  m.def(
      "alias",
      [](TensorRef tensor, nb::object shape_object, nb::object strides_object, int64_t offset) {
        Sizes shape = sizes_from_object(shape_object.ptr(), "shape");
        Sizes strides = sizes_from_object(strides_object.ptr(), "strides");
        if (shape.count != strides.count)
          fail(ErrorKind::Shape, "as_strided: the shape has ", shape.count, " axes and the strides ", strides.count);
        materialize(tensor.get());
        DType dtype = tensor->view.dtype;
        checked_bytes(dtype, shape.count, shape.values);
        // The lowest and highest element that the geometry reaches must lie in the storage.
        int64_t low = offset, high = offset, items = static_cast<int64_t>(tensor->storage->bytes() / item_size(dtype));
        bool outside = false, empty = false;
        for (int i = 0; i < shape.count; ++i) {
          empty |= shape.values[i] == 0;
          int64_t reach;
          outside |= __builtin_mul_overflow(shape.values[i] - 1, strides.values[i], &reach);
          outside |= __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high);
        }
        outside |= low < 0 || high >= items;
        if (empty)
          offset = 0;
        else if (outside)
          fail(ErrorKind::Index, "as_strided: shape ", format_shape(shape.count, shape.values), " with strides ",
               format_shape(strides.count, strides.values), " from element ", offset, " leaves the storage of ", items,
               " elements");
        char* data = tensor->storage->data() + offset * static_cast<int64_t>(item_size(dtype));
        return TensorRef::adopt(new_view(tensor.get(), data, dtype, shape.count, shape.values, strides.values));
      },
      nb::arg("tensor"), nb::arg("shape"), nb::arg("strides"), nb::arg("offset"),
      "The storage of a tensor seen through another geometry, in elements from its start; no history.");
  m.def(
      "set_view_base",
      [](TensorRef made, TensorRef of) {
        made->inference = grad_mode.inference || of->inference;
        if (made->inference) return;
        AutogradExtra& extra = extra_of(made.get());
        PyObject* root = of->extra && of->extra->base ? of->extra->base : of.object();
        PyObject* old = std::exchange(extra.base, Py_NewRef(root));
        Py_XDECREF(old);
        extra.history_version = of->storage->version();
      },
      nb::arg("made"), nb::arg("of"), "`made`, which shares the memory of `of`, counts as a view of it from now on.");
  m.def(
      "make_sharded",
      [](nb::object parts, nb::object shape, nb::object dtype, int device, bool writable) {
        Sizes sizes = sizes_from_object(shape.ptr(), "shape");
        const DType kind = dtype_from_object(dtype.ptr());
        int64_t strides[kMaxDims], step = 1;
        for (int i = sizes.count - 1; i >= 0; --i) {
          strides[i] = step;
          step *= std::max<int64_t>(sizes.values[i], 1);
        }
        const size_t bytes = checked_bytes(kind, sizes.count, sizes.values);
        Storage* storage = Storage::shard(bytes, parts.release().ptr(), writable, device);
        Tensor* made = new_tensor(storage, storage->data(), kind, sizes.count, sizes.values, strides);
        made->inference = grad_mode.inference;
        return TensorRef::adopt(made);
      },
      nb::arg("parts"), nb::arg("shape"), nb::arg("dtype"), nb::arg("device") = 0, nb::arg("writable") = true,
      "A tensor whose elements lie on several ranks, as `parts` says; `shape` is that of the whole.");
  m.def(
      "parts_of",
      [](nb::handle h) -> nb::object {
        if (!is_tensor(h.ptr())) return nb::none();
        PyObject* parts = reinterpret_cast<Tensor*>(h.ptr())->storage->parts();
        return parts ? nb::borrow(parts) : nb::none();
      },
      nb::arg("tensor").none(),
      "What make_sharded was given, of a sharded tensor or a view of it; None for all others.");
  m.def(
      "reinterpret",
      [](TensorRef tensor, nb::object shape_object, nb::object strides_object, nb::object dtype_object) {
        if (tensor->storage->sharded()) refuse_sharded(tensor.get());
        Sizes shape = sizes_from_object(shape_object.ptr(), "shape");
        Sizes strides = sizes_from_object(strides_object.ptr(), "strides");
        DType dtype = dtype_from_object(dtype_object.ptr());
        return TensorRef::adopt(
            new_view(tensor.get(), tensor->view.data, dtype, shape.count, shape.values, strides.values));
      },
      nb::arg("tensor"), nb::arg("shape"), nb::arg("strides"), nb::arg("dtype"),
      "The bytes of a tensor as elements of another type; the caller has checked that they fit. No history.");
}

}  // namespace tandem
