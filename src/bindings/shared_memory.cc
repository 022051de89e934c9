// Memory shared between processes, and tensors on it; see tandem/multiprocessing.
#include "memory/shared_memory.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>

#include "bindings/bindings.h"
#include "bindings/foreign.h"
#include "bindings/tensor_convert.h"
#include "capture/capture.h"
#include "check.h"

namespace nb = nanobind;

namespace tandem {
namespace {

using Shared = std::shared_ptr<SharedMemory>;

void release_shared(void* context) {
  auto* memory = static_cast<Shared*>(context);
  (*memory)->users.fetch_sub(1);
  delete memory;
}

TensorRef tensor_on(const Shared& memory, nb::object dtype, nb::object shape_object, nb::object strides_object,
                    int64_t offset) {
  Foreign foreign;
  foreign.dtype = dtype_from_object(dtype.ptr());
  foreign.writable = true;
  Sizes shape = sizes_from_object(shape_object.ptr(), "shape");
  checked_bytes(foreign.dtype, shape.count, shape.values);
  foreign.ndim = shape.count;
  std::copy_n(shape.values, shape.count, foreign.shape);
  bool empty = std::find(shape.values, shape.values + shape.count, 0) != shape.values + shape.count;
  if (strides_object.is_none()) {
    int64_t step = 1;
    for (int i = shape.count - 1; i >= 0; --i) {
      foreign.strides[i] = step;
      step *= std::max<int64_t>(shape.values[i], 1);
    }
  } else {
    Sizes strides = sizes_from_object(strides_object.ptr(), "strides");
    if (strides.count != shape.count) fail(ErrorKind::Shape, "SharedMemory.tensor: shape and strides differ in length");
    std::copy_n(strides.values, strides.count, foreign.strides);
  }
  int64_t last = 0;
  bool outside = offset < 0;
  for (int i = 0; i < foreign.ndim && !empty; ++i) {
    int64_t reach;
    outside |= foreign.strides[i] < 0 || __builtin_mul_overflow(foreign.shape[i] - 1, foreign.strides[i], &reach) ||
               __builtin_add_overflow(last, reach, &last);
  }
  auto item = static_cast<int64_t>(item_size(foreign.dtype));
  int64_t end = 0;
  outside |= __builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, item, &last) ||
             __builtin_add_overflow(last, offset, &end);
  if (outside || (!empty && end > static_cast<int64_t>(memory->bytes())))
    fail(ErrorKind::Value, "SharedMemory.tensor: ", name(foreign.dtype), " ", format_shape(shape.count, shape.values),
         " at byte ", offset, " does not lie in the ", memory->bytes(), " bytes");
  foreign.data = memory->data() + (empty ? 0 : offset);
  foreign.check_alignment("SharedMemory.tensor: memory");
  memory->users.fetch_add(1);
  return TensorRef::adopt(foreign.tensor(&release_shared, new Shared(memory)));
}

}  // namespace

void register_shared_memory(nb::module_& m) {
  nb::class_<SharedMemory>(m, "SharedMemory", nb::is_weak_referenceable(),
                           "Memory without a name that several processes can map.")
      .def(nb::new_([](size_t bytes) { return SharedMemory::create(bytes); }), nb::arg("bytes"))
      .def_static("attach", &SharedMemory::attach, nb::arg("fd"),
                  "The memory behind a descriptor from another process; the descriptor is taken over.")
      .def_prop_ro("bytes", &SharedMemory::bytes)
      .def_prop_ro("fd", &SharedMemory::fd)
      .def_prop_ro("inode", &SharedMemory::inode)
      .def_prop_ro(
          "users", [](const SharedMemory& self) { return self.users.load(); },
          "How many storages of this process are on it.")
      .def("close_fd", &SharedMemory::close_fd, "Closes the descriptor; the memory stays mapped.")
      .def("tensor", &tensor_on, nb::arg("dtype"), nb::arg("shape"), nb::arg("strides") = nb::none(),
           nb::arg("offset") = 0, "A tensor at an offset in bytes, on this memory and keeping it.");
  m.def(
      "storage_references", [](TensorRef tensor) { return tensor->storage->references(); }, nb::arg("tensor"),
      "How many tensors and others hold the memory of a tensor.");
  m.def(
      "shared_memory_of",
      [](TensorRef tensor) -> nb::object {
        materialize(tensor.get());
        auto* memory = static_cast<Shared*>(tensor->storage->context_of(&release_shared));
        if (!memory) return nb::none();
        return nb::make_tuple(*memory, static_cast<int64_t>(tensor->view.data - (*memory)->data()));
      },
      nb::arg("tensor"), "(memory, offset in bytes) of a tensor on shared memory; None for others.");
}

}  // namespace tandem
