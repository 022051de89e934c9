// Automatic batching for Python: what tandem/autobatch.py is made of.
#include "autobatch/batch.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"

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
nb::list vertices(BatchScope& scope, std::vector<int64_t> offsets, std::vector<int64_t> children, nb::dict functions,
                  nb::list inputs, size_t states) {
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
  TensorList rows;
  for (nb::handle h : inputs) rows.push_back(tensor_of(h));
  nb::list results;
  try {
    for (TensorRef& t :
         scope.batch.run_vertices({std::move(offsets), std::move(children)}, made, std::move(rows), states))
      results.append(nb::steal(reinterpret_cast<PyObject*>(t.leak())));
  } catch (const PythonError&) {
    nb::raise_python_error();
  }
  return results;
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
  m.def("batching", [] { return active_batch != nullptr && active_capture == nullptr; });
}

}  // namespace tandem
