// One register function per area; module.cc calls them.
#pragma once
#include <nanobind/nanobind.h>

namespace tandem {

void connect_interpreter();  // interpreter.cc: before anything else
void register_errors(nanobind::module_& m);
void register_memory(nanobind::module_& m);
void register_tensor(nanobind::module_& m);
void register_tensor_data(nanobind::module_& m);
void register_numpy(nanobind::module_& m);
void register_buffer(nanobind::module_& m);
void register_dlpack(nanobind::module_& m);
void register_generator(nanobind::module_& m);
void register_plan(nanobind::module_& m);
void register_enums(nanobind::module_& m);
void register_dispatch(nanobind::module_& m);
void register_autograd(nanobind::module_& m);
void register_capture(nanobind::module_& m);
void register_compiled_call(nanobind::module_& m);  // after register_capture
void register_call_replay(nanobind::module_& m);    // before register_capture
void register_autobatch(nanobind::module_& m);
void register_members(nanobind::module_& m);
void register_updates(nanobind::module_& m);
void register_executor(nanobind::module_& m);
void register_queue(nanobind::module_& m);
void register_library(nanobind::module_& m);
void register_files(nanobind::module_& m);
void register_rows(nanobind::module_& m);
void register_sample_seeds(nanobind::module_& m);
void register_counted(nanobind::module_& m);
void register_shared_memory(nanobind::module_& m);
void register_object_loader(nanobind::module_& m);
void register_cuda(nanobind::module_& m);
void register_profile(nanobind::module_& m);
void register_collectives(nanobind::module_& m);

}  // namespace tandem
