#include "tensor/generator.h"

#include <nanobind/stl/pair.h>

#include <random>

#include "bindings/bindings.h"
#include "capture/capture.h"
#include "check.h"

namespace nb = nanobind;

namespace tandem {
namespace {

// Any Python int is a seed; negative ones and long ones count modulo 2^64, as NumPy users of large seeds expect no
// error.
uint64_t seed_from_object(nb::handle value) {
  nb::object integer = nb::steal(PyNumber_Index(value.ptr()));
  if (!integer.is_valid()) {
    PyErr_Clear();
    fail(ErrorKind::Type, "a seed must be an int, got ", nb::repr(value).c_str());
  }
  uint64_t seed = PyLong_AsUnsignedLongLongMask(integer.ptr());
  if (seed == static_cast<uint64_t>(-1) && PyErr_Occurred()) nb::raise_python_error();
  return seed;
}

uint64_t fresh_seed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

// What looks at a stream, or sets it, sees what a replay of the function would not (Note [Replayed calls]).
Generator& touched(Generator& generator) {
  if (active_capture && active_capture->record)
    active_capture->record->refuse("it seeds a generator of random numbers, or looks at its state");
  return generator;
}

}  // namespace

static thread_local Generator* of_thread = nullptr;  // of a rank that is a thread; kept by its Python object

Generator* default_generator() {
  if (of_thread) return of_thread;
  static Generator* generator = new Generator{0, 0};  // never destroyed: Python may hold it
  return generator;
}

Generator* as_generator(PyObject* object) {
  Generator* generator = nullptr;
  return nb::try_cast(nb::handle(object), generator) ? generator : nullptr;  // None casts to null
}

void register_generator(nb::module_& m) {
  nb::class_<Generator>(m, "Generator", "A stream of random numbers, set by its seed.")
      .def(
          "__init__",
          [](Generator* self, nb::object seed) {
            new (self) Generator{seed.is_none() ? 0 : seed_from_object(seed), 0};
          },
          nb::arg("seed") = nb::none())
      .def(
          "manual_seed",
          [](nb::object self, nb::object seed) {
            touched(nb::cast<Generator&>(self)).manual_seed(seed_from_object(seed));
            return self;
          },
          nb::arg("seed"), "Start again from this seed; gives the generator itself.")
      .def(
          "seed",
          [](Generator& self) {
            touched(self).manual_seed(fresh_seed());
            return self.seed;
          },
          "Start again from a seed nobody can foresee; gives that seed.")
      .def("initial_seed", [](Generator& self) { return touched(self).seed; })
      .def(
          "get_state", [](Generator& self) { return std::pair(touched(self).seed, self.offset); },
          "(seed, offset): everything that later numbers depend on.")
      .def(
          "set_state",
          [](Generator& self, std::pair<uint64_t, uint64_t> state) {
            touched(self).seed = state.first;
            self.offset = state.second;
          },
          nb::arg("state"))
      .def(
          "_advance", [](Generator& self, uint64_t count) { return touched(self).advance(count); }, nb::arg("count"),
          "Take `count` counters; gives the first of them.")
      .def("__getstate__", [](const Generator& self) { return std::pair(self.seed, self.offset); })
      .def("__setstate__",
           [](Generator& self, std::pair<uint64_t, uint64_t> state) {
             new (&self) Generator{state.first, state.second};
           })
      .def("__repr__", [](const Generator& self) {
        return nb::str(
            ("Generator(seed=" + std::to_string(self.seed) + ", offset=" + std::to_string(self.offset) + ")").c_str());
      });
  m.def("default_generator", &default_generator, nb::rv_policy::reference);
  m.def(
      "set_thread_generator",
      [](nb::object generator) { of_thread = generator.is_none() ? nullptr : nb::cast<Generator*>(generator); },
      nb::arg("generator").none(),
      "Gives this thread a default generator of its own, which the caller keeps; None: that of the process.");
}

}  // namespace tandem
