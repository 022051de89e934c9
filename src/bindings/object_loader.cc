#include "loader/object_loader.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "bindings/bindings.h"
#include "device/cpu_id.h"
#include "device/preload.h"
#include "loader/argument_reduction.h"
#include "loader/object_linker.h"

namespace nb = nanobind;

namespace tandem {

static std::string_view view(nb::bytes bytes) {
  return {bytes.c_str(), bytes.size()};
}

void register_object_loader(nb::module_& m) {
  m.def(
      "load_object",
      [](nb::bytes object, const std::string& entry) {
        nb::gil_scoped_release release;
        return reinterpret_cast<uintptr_t>(load_object(view(object), entry));
      },
      nb::arg("object"), nb::arg("entry"),
      "Address of a function of an ELF object, loaded for the life of the process.");
  m.def(
      "link_object",
      [](nb::bytes object, const std::string& entry, uint64_t address, uint64_t undefined) {
        ObjectLinker linker(view(object));
        auto image = linker.link(address, [&](const char*) { return undefined; });
        return std::make_pair(nb::bytes(image.data(), image.size()), linker.symbol(entry));
      },
      nb::arg("object"), nb::arg("entry"), nb::arg("address"), nb::arg("undefined") = 0,
      "What load_object would put at `address`, for any machine, and where the function begins in it. Undefined "
      "symbols "
      "are all taken to be at `undefined`.");
  m.def(
      "own_symbols",
      [] {
        nb::dict symbols;
        symbols[reduce_angles_name] = reinterpret_cast<uintptr_t>(&reduce_angles);
        return symbols;
      },
      "Addresses, by name, of our own routines that kernels call: for loaders other than load_object.");
  m.def("preload", &preload, nb::arg("path"), "Begins to load a shared library, beside whatever comes next.");
  m.def("finish_preload", &finish_preload, nb::call_guard<nb::gil_scoped_release>(),
        "Waits until what preload() began is there.");
  m.def("cpu_id", &cpu_id, "Names the CPU as far as generated code cares.");
  m.def("cpu_level", &cpu_level, "The level of processors whose code is as good here as what is compiled here, or ''.");
}

}  // namespace tandem
