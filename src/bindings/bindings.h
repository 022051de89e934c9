// One register function per area; module.cc calls them.
#pragma once
#include <nanobind/nanobind.h>

namespace tandem {

void register_library(nanobind::module_& m);
void register_object_loader(nanobind::module_& m);

}  // namespace tandem
