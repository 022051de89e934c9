#include "bindings/bindings.h"

namespace tandem {
void register_flat(nanobind::module_& m);  // flat.cc
}

// The runtime is one for a process: its operators call Python functions of the interpreter that imported it first. So a
// second one is refused, before nanobind makes itself at home there: our PyInit goes before its own.
#define PyInit__runtime init_runtime
NB_MODULE(_runtime, m) {
  // Registered operators and types live until the process ends; nanobind would call each of them a leak.
  nanobind::set_leak_warnings(false);
  tandem::connect_interpreter();
  tandem::register_errors(m);
  tandem::register_memory(m);
  tandem::register_tensor(m);
  tandem::register_tensor_data(m);
  tandem::register_numpy(m);
  tandem::register_buffer(m);
  tandem::register_dlpack(m);
  tandem::register_generator(m);
  tandem::register_enums(m);
  tandem::register_plan(m);
  tandem::register_dispatch(m);
  tandem::register_autograd(m);
  tandem::register_call_replay(m);
  tandem::register_capture(m);
  tandem::register_compiled_call(m);
  tandem::register_autobatch(m);
  tandem::register_members(m);
  tandem::register_updates(m);
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
  tandem::register_collectives(m);
}
#undef PyInit__runtime

extern "C" NB_EXPORT PyObject* PyInit__runtime() {
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
    PyErr_SetString(PyExc_ImportError,
                    "tandem serves the main interpreter of a process, and cannot be imported in a second one"
                    "\n  fix: use processes (multiprocessing) or threads instead of subinterpreters");
    return nullptr;
  }
  return init_runtime();
}
