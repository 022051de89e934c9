// Capture for Python: what tandem/compiling/compiled.py is made of.
#include "capture/capture.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace tandem {

namespace {

struct Pause {  // what is done inside happens now, on real memory
  Capture* outer = nullptr;
};

struct PlanList {  // keeps the plans of a body, whose addresses are in its key
  std::vector<Ref<Plan>> plans;
};

struct BodyScope {  // a function given to td.scan and the like, being captured
  explicit BodyScope(std::string name) : capture(std::move(name)) {}
  Capture capture;
  Capture* outer = nullptr;
  bool entered = false;

  nb::list enter(const std::vector<std::tuple<int, std::vector<int64_t>, bool>>& inputs, int device) {
    capture.region_device = device;
    capture.thread = std::this_thread::get_id();
    outer = std::exchange(active_capture, &capture);
    capture.record = outer ? outer->record : nullptr;
    entered = true;
    nb::list made;
    for (auto& [dtype, shape, requires_grad] : inputs) {
      TensorRef t =
          capture.input(static_cast<DType>(dtype), static_cast<int>(shape.size()), shape.data(), requires_grad);
      made.append(nb::steal(reinterpret_cast<PyObject*>(t.leak())));
    }
    return made;
  }
  void exit() {
    if (!entered) return;
    entered = false;
    active_capture = outer;
  }
};

}  // namespace

void register_capture(nb::module_& m) {
  nb::class_<ProgramCache>(m, "ProgramCache")
      .def("__init__",
           [](ProgramCache* self, nb::object report) {
             new (self) ProgramCache();
             self->report = report.release().ptr();
           })
      .def("set_watch",
           [](ProgramCache& c, nb::object watch) {
             PyObject* old = std::exchange(c.watch, watch.is_none() ? nullptr : watch.release().ptr());
             Py_XDECREF(old);
           })
      .def("set_remote",
           [](ProgramCache& c, nb::object remote) {
             PyObject* old = std::exchange(c.remote, remote.is_none() ? nullptr : remote.release().ptr());
             Py_XDECREF(old);
           })
      .def_prop_ro("num_traces", [](ProgramCache& c) { return c.entries.size(); })
      .def_prop_ro("num_programs",
                   [](ProgramCache& c) {
                     size_t n = 0;
                     for (auto& entry : c.entries) n += entry->programs.size();
                     return n;
                   })
      .def_ro("num_predicted", &ProgramCache::num_predicted, "How many programs ran for calls that were predicted.")
      .def("program_runs",  // [(number in the report, runs)]
           [](ProgramCache& c) {
             nb::list out;
             for (auto& entry : c.entries)
               for (auto& program : entry->programs) out.append(nb::make_tuple(program.number, program.runs));
             return out;
           })
      .def("clear", [](ProgramCache& c) { c.clear(); });
  nb::class_<Pause>(m, "PauseCapture")
      .def(nb::init<>())
      .def("__enter__",
           [](Pause& p) {
             if (active_capture && active_capture->record)
               active_capture->record->refuse("it does something at once that is no part of its program");
             p.outer = std::exchange(active_capture, nullptr);
           })
      .def("__exit__", [](Pause& p, nb::args) { active_capture = std::exchange(p.outer, nullptr); });
  nb::class_<PlanList>(m, "PlanList");
  nb::class_<BodyScope>(m, "BodyScope")
      .def(nb::init<std::string>())
      .def("enter", &BodyScope::enter, nb::arg("inputs"), nb::arg("device") = 0)
      .def("exit", &BodyScope::exit)
      .def("locate",
           [](BodyScope& s, nb::handle h) {
             if (!is_tensor(h.ptr())) throw nb::type_error("expected a tandem.Tensor");
             int32_t site[3];
             s.capture.locate(reinterpret_cast<Tensor*>(h.ptr()), site);
             return nb::make_tuple(site[0], site[1], site[2]);  // -> Operand
           })
      .def("key",
           [](BodyScope& s) {
             auto& key = s.capture.key();
             return nb::bytes(reinterpret_cast<const char*>(key.data()), key.size());
           })
      .def("leaves", [](BodyScope& s) { return nb::steal<nb::list>(s.capture.leaf_tensors()); })
      .def("calls", [](BodyScope& s) { return nb::steal<nb::list>(s.capture.describe_calls()); })
      .def("numbers", [](BodyScope& s) { return nb::steal<nb::list>(s.capture.describe_numbers()); })
      .def("ints", [](BodyScope& s) { return nb::steal<nb::list>(s.capture.describe_ints()); })
      .def("default_generator_only", [](BodyScope& s) { return s.capture.default_generator_only(); })
      .def("plans", [](BodyScope& s) { return PlanList{s.capture.plans()}; });
  m.def("in_body", [] { return active_capture != nullptr && !active_capture->region.empty(); });
  m.def(
      "captured_calls", [] { return active_capture ? active_capture->num_captured() : int64_t{-1}; },
      "How many calls the compiled function that runs now has captured; -1 outside.");
  m.def(
      "recording", [] { return active_capture != nullptr && active_capture->record != nullptr; },
      "Whether the compiled function that runs now is to be replayed: nothing may be read that is known only now.");
  m.def("capturing", [] { return active_capture != nullptr; });
  m.def("pending", [](nb::handle h) {
    if (!is_tensor(h.ptr())) throw nb::type_error("expected a tandem.Tensor");
    return reinterpret_cast<Tensor*>(h.ptr())->storage->pending();
  });
  // Whether reading its elements would end the segment that is being captured.
  m.def("unsettled", [](nb::handle h) {
    if (!is_tensor(h.ptr())) throw nb::type_error("expected a tandem.Tensor");
    return active_capture != nullptr && active_capture->is_behind(reinterpret_cast<Tensor*>(h.ptr())->storage);
  });
  m.def(
      "note_rebinding",
      [](nb::dict members, nb::str name, nb::handle value) {
        if (!active_capture || !is_tensor(value.ptr())) return;
        if (!reinterpret_cast<Tensor*>(value.ptr())->storage->pending()) return;
        active_capture->note_rebinding(members.ptr(), name.ptr(), PyDict_GetItem(members.ptr(), name.ptr()));
      },
      nb::arg("members"), nb::arg("name"), nb::arg("value"),
      "Before members[name] = value: a value that a compiled function never gets to compute is taken back.");
  m.def("materialize", [](nb::handle h) {
    if (!is_tensor(h.ptr())) throw nb::type_error("expected a tandem.Tensor");
    try {
      materialize(reinterpret_cast<Tensor*>(h.ptr()));
    } catch (const PythonError&) {
      nb::raise_python_error();
    }
  });
}

}  // namespace tandem
