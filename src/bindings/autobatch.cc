// Automatic batching for Python: what tandem/compiling/autobatch.py is made of.
#include "autobatch/batch.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include "bindings/bindings.h"
#include "tensor/device_rows.h"

namespace nb = nanobind;

namespace tandem {

namespace {

struct BatchScope {
  Batch batch;
  Batch* outer = nullptr;
  bool entered = false;
};

TensorRef tensor_of(nb::handle h) {
  if (!is_tensor(h.ptr())) throw nb::type_error("expected a tandem.Tensor");
  return TensorRef::share(reinterpret_cast<Tensor*>(h.ptr()));
}

Argument number_of(nb::handle h) {
  Argument a{};
  if (PyBool_Check(h.ptr())) {
    a.kind = Argument::Kind::Bool;
    a.truth = h.ptr() == Py_True;
  } else if (PyLong_Check(h.ptr())) {
    a.kind = Argument::Kind::Integer;
    a.integer = nb::cast<int64_t>(h);
  } else if (PyComplex_Check(h.ptr())) {
    a.kind = Argument::Kind::Complex;
    a.real = PyComplex_RealAsDouble(h.ptr());
    a.imaginary = PyComplex_ImagAsDouble(h.ptr());
  } else {
    a.kind = Argument::Kind::Float;
    a.real = nb::cast<double>(h);
  }
  return a;
}

// functions: {how many others a vertex takes from: (operator function, constants, numbers, integers)}
VertexFunctions functions_of(nb::dict functions) {
  VertexFunctions made;
  for (auto [count, parts] : functions) {
    auto [op, constants, numbers, ints] = nb::cast<std::tuple<nb::object, nb::list, nb::list, nb::list>>(parts);
    VertexFunction& function = made[nb::cast<int64_t>(count)];
    if (Py_TYPE(op.ptr()) != OpFunctionType) throw nb::type_error("expected an operator function");
    function.op = reinterpret_cast<OpFunction*>(op.ptr());
    for (nb::handle h : constants) function.constants.push_back(tensor_of(h));
    for (nb::handle h : numbers) function.numbers.push_back(number_of(h));
    for (nb::handle h : ints) {
      Argument& a = function.ints.emplace_back();
      a.kind = Argument::Kind::Int;
      a.integer = nb::cast<int64_t>(h);
    }
  }
  return made;
}

TensorList tensors_of(nb::list list) {
  TensorList tensors;
  for (nb::handle h : list) tensors.push_back(tensor_of(h));
  return tensors;
}

nb::list list_of(TensorList tensors) {
  nb::list list;
  for (TensorRef& t : tensors) list.append(nb::steal(reinterpret_cast<PyObject*>(t.leak())));
  return list;
}

using Integers = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Structure structure_of(Integers offsets, Integers children) {
  return {{offsets.data(), offsets.data() + offsets.size()}, {children.data(), children.data() + children.size()}};
}

nb::list vertices(BatchScope& scope, Integers offsets, Integers children, nb::dict functions, nb::list inputs,
                  size_t states) {
  try {
    return list_of(
        scope.batch.run_vertices(structure_of(offsets, children), functions_of(functions), tensors_of(inputs), states));
  } catch (const PythonError&) {
    nb::raise_python_error();
  }
}

nb::object frontiers(Integers offsets, Integers children, nb::dict functions, nb::list inputs, nb::list states) {
  try {
    TensorList results;
    if (!run_frontiers(structure_of(offsets, children), functions_of(functions), tensors_of(inputs), tensors_of(states),
                       results))
      return nb::none();
    return list_of(std::move(results));
  } catch (const PythonError&) {
    nb::raise_python_error();
  }
}

}  // namespace

void register_autobatch(nb::module_& m) {
  nb::class_<BatchScope>(m, "BatchScope")
      .def(nb::init<>())
      .def("enter",
           [](BatchScope& s) {
             s.batch.thread = std::this_thread::get_id();
             s.outer = std::exchange(active_batch, &s.batch);
             s.entered = true;
           })
      .def(
          "exit",
          [](BatchScope& s, bool run) {
            if (!s.entered) return;
            s.entered = false;
            active_batch = s.outer;
            struct Drop {
              Batch& batch;
              ~Drop() { batch.drop(); }
            } drop{s.batch};
            try {
              if (run) s.batch.run_all();
            } catch (const PythonError&) {
              nb::raise_python_error();
            }
          },
          nb::arg("run"))
      .def("vertices", &vertices, nb::arg("offsets"), nb::arg("children"), nb::arg("functions"), nb::arg("inputs"),
           nb::arg("states"))
      .def("set_example", [](BatchScope& s, int32_t example) { return std::exchange(s.batch.example, example); })
      .def_prop_ro("groups", [](BatchScope& s) { return s.batch.groups; })
      .def_prop_ro("calls", [](BatchScope& s) { return s.batch.calls_run; });
  m.def("run_frontiers", &frontiers, nb::arg("offsets"), nb::arg("children"), nb::arg("functions"), nb::arg("inputs"),
        nb::arg("states"));
  m.def("set_rows_as_on_devices", [](bool on) { return std::exchange(rows_as_on_devices, on); });
  m.def("set_cells_worth_compiling", [](int64_t count) { return std::exchange(cells_worth_compiling, count); });
  m.def("batching", [] { return active_batch != nullptr && active_capture == nullptr; });
}

}  // namespace tandem
