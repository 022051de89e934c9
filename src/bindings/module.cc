#include "bindings/bindings.h"

namespace tandem {
void register_flat(nanobind::module_& m);  // flat.cc
}

NB_MODULE(_runtime, m) {
  // Registered operators and types live until the process ends; nanobind would call each of them a leak.
  nanobind::set_leak_warnings(false);
  tandem::register_errors(m);
  tandem::register_memory(m);
  tandem::register_tensor(m);
  tandem::register_tensor_data(m);
  tandem::register_numpy(m);
  tandem::register_buffer(m);
  tandem::register_dlpack(m);
  tandem::register_generator(m);
  tandem::register_plan(m);
  tandem::register_dispatch(m);
  tandem::register_autograd(m);
  tandem::register_capture(m);
  tandem::register_executor(m);
  tandem::register_queue(m);
  tandem::register_library(m);
  tandem::register_object_loader(m);
  tandem::register_files(m);
  tandem::register_rows(m);
  tandem::register_sample_seeds(m);
  tandem::register_counted(m);
  tandem::register_flat(m);
  tandem::register_shared_memory(m);
  tandem::register_cuda(m);
  tandem::register_profile(m);
}
