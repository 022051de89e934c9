// Capture for Python: what tandem/compiled.py is made of.
#include "program/capture.h"

#include <nanobind/nanobind.h>

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace tandem {

namespace {

struct CaptureScope {  // one call of a compiled function
  CaptureScope(ProgramCache* programs, bool whole) : capture(programs) { capture.whole = whole; }
  Capture capture;
  Capture* outer = nullptr;
  bool entered = false;
};

}  // namespace

void register_capture(nb::module_& m) {
  nb::class_<ProgramCache>(m, "ProgramCache")
      .def("__init__",
           [](ProgramCache* self, nb::object report) {
             new (self) ProgramCache();
             self->report = report.release().ptr();
           })
      .def_prop_ro("num_traces", [](ProgramCache& c) { return c.entries.size(); })
      .def_prop_ro("num_programs",
                   [](ProgramCache& c) {
                     size_t n = 0;
                     for (auto& entry : c.entries) n += entry->programs.size();
                     return n;
                   })
      .def("runs",
           [](ProgramCache& c) {
             nb::list out;
             for (auto& entry : c.entries)
               out.append(nb::make_tuple(entry->runs, entry->plans.size(), entry->programs.size()));
             return out;
           })
      .def("clear", [](ProgramCache& c) { c.clear(); });
  nb::class_<CaptureScope>(m, "CaptureScope")
      .def(nb::init<ProgramCache*, bool>(), nb::keep_alive<1, 2>())
      .def("enter",
           [](CaptureScope& s) {
             s.outer = std::exchange(active_capture, &s.capture);
             s.entered = true;
           })
      .def("exit",
           [](CaptureScope& s) {
             if (!s.entered) return;
             s.entered = false;
             struct Restore {
               CaptureScope& s;
               ~Restore() { active_capture = s.outer; }
             } restore{s};
             try {
               s.capture.flush();
             } catch (const PythonError&) {
               nb::raise_python_error();
             }
           })
      .def_prop_ro("segments", [](CaptureScope& s) { return s.capture.segments; });
  m.def("capturing", [] { return active_capture != nullptr; });
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
