// What td.profile sees of recordings (tandem/profiler.py).
#include "profile/profile.h"

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace tandem {

void register_profile(nb::module_& m) {
  m.def("profile_start", &profile::start, "Begins to record what runs; False if that was going on already.");
  m.def(
      "profile_stop",
      [] {
        profile::Result result;
        {
          nb::gil_scoped_release release;
          result = profile::stop();
        }
        nb::list entries;
        for (const profile::Entry& e : result.entries)
          // -> Step
          entries.append(nb::make_tuple(static_cast<int>(e.kind), e.device, e.label.c_str(), e.op.c_str(),
                                        e.line.c_str(), e.thread, e.stream, e.start, e.duration, e.launched, e.bytes,
                                        e.live));
        return nb::make_tuple(entries, result.dropped);
      },
      "Ends the recording: (entries, how many were left out).");
}

}  // namespace tandem
