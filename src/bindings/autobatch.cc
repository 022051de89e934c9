// Automatic batching for Python: what tandem/autobatch.py is made of.
#include "autobatch/batch.h"

#include <nanobind/nanobind.h>

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace tandem {

namespace {

struct BatchScope {
  Batch batch;
  Batch* outer = nullptr;
  bool entered = false;
};

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
            if (run) s.batch.run_all();
          },
          nb::arg("run"))
      .def("set_example", [](BatchScope& s, int32_t example) { return std::exchange(s.batch.example, example); })
      .def_prop_ro("groups", [](BatchScope& s) { return s.batch.groups; })
      .def_prop_ro("calls", [](BatchScope& s) { return s.batch.calls_run; });
  m.def("batching", [] { return active_batch != nullptr && active_capture == nullptr; });
}

}  // namespace tandem
