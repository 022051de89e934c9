// Library routines by name, on NumPy arrays: for tests and experiments. Programs call them without Python.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "check.h"
#include "device/parallel.h"
#include "library/blas.h"
#include "library/choices.h"
#include "library/conv_choice.h"
#include "library/deterministic.h"
#include "library/kernels/kernels.h"
#include "library/product_choice.h"
#include "library/registry.h"
#include "switches.h"

namespace nb = nanobind;

namespace tandem {
namespace {

DType dtype_named(const std::string& text) {
  for (int i = 0; i < kNumDTypes; ++i)
    if (text == kDTypeName[i]) return static_cast<DType>(i);
  fail(ErrorKind::Type, "there is no dtype ", text);
}

// By attributes rather than the buffer protocol, which has no bfloat16.
View view_of(nb::handle array) {
  View view;
  view.data = reinterpret_cast<char*>(nb::cast<uintptr_t>(array.attr("__array_interface__")["data"][0]));
  view.dtype = dtype_named(nb::cast<std::string>(array.attr("dtype").attr("name")));
  view.ndim = nb::cast<int>(array.attr("ndim"));
  if (view.ndim > kMaxDims)
    fail(ErrorKind::Shape, "an array of ", view.ndim, " dimensions; at most ", kMaxDims, " are possible");
  for (int d = 0; d < view.ndim; ++d) {
    view.shape[d] = nb::cast<int64_t>(array.attr("shape")[d]);
    const int64_t bytes = nb::cast<int64_t>(array.attr("strides")[d]),
                  size = static_cast<int64_t>(item_size(view.dtype));
    if (bytes % size) fail(ErrorKind::Value, "a stride of ", bytes, " bytes is not a whole number of elements");
    view.strides[d] = bytes / size;
  }
  return view;
}

std::vector<int64_t> library_call(const std::string& name, nb::list inputs, nb::list outputs,
                                  const std::vector<int64_t>& ints, const std::vector<double>& floats, int repeat) {
  const library::Function function = library::find(name);
  std::vector<View> in, out;
  for (nb::handle array : inputs) in.push_back(view_of(array));
  for (nb::handle array : outputs) out.push_back(view_of(array));
  std::vector<int64_t> results(8, 0);
  const library::Call call{in.data(),     static_cast<int>(in.size()),   out.data(),    static_cast<int>(out.size()),
                           ints.data(),   static_cast<int>(ints.size()), floats.data(), static_cast<int>(floats.size()),
                           results.data()};
  nb::gil_scoped_release release;
  for (int i = 0; i < repeat; ++i) function(call);
  return results;
}

}  // namespace

void register_library(nb::module_& m) {
  m.def(
      "library_call", &library_call, nb::arg("name"), nb::arg("inputs"), nb::arg("outputs"),
      nb::arg("ints") = std::vector<int64_t>(), nb::arg("floats") = std::vector<double>(), nb::arg("repeat") = 1,
      "Runs a library routine on NumPy arrays; writes the outputs in place and returns the routine's integer results.");
  m.def("library_names", &library::names);
  m.def("blas_backend", &library::blas_backend,
        "What serves matrix products and convolutions: onednn, openblas or loops.");
  m.def("num_threads", &num_threads);
  m.def("deterministic", &library::deterministic);
  m.def("set_deterministic", [](bool on) { library::deterministic_flag = on; }, nb::arg("on"));
  m.def("set_num_threads", &set_num_threads, nb::arg("n"));  // 0: as many as the process may use
  m.def(
      "time_products",
      [](int kind, int runs) {
        const auto times = library::time_products(static_cast<library::ProductKind>(kind), runs);
        return std::make_pair(times.own, times.onednn);
      },
      nb::arg("kind"), nb::arg("runs"), nb::call_guard<nb::gil_scoped_release>(),
      "Seconds of a typical product of a kind, by our own code and by oneDNN (Note [Choice of products]).");
  m.def(
      "chosen_own_products", [](int kind) { return library::chosen_own(static_cast<library::ProductKind>(kind)); },
      nb::arg("kind"), "Whether our own code was chosen for a kind of products; None before a choice was made.");
  m.def(
      "choose_products",
      [](int kind, bool own, bool again) {
        library::choose_products(static_cast<library::ProductKind>(kind), own, again);
      },
      nb::arg("kind"), nb::arg("own"), nb::arg("again") = false,
      "Chooses who computes a kind of products, by a measurement; again: whatever was chosen before.");
  m.def(
      "force_products",
      [](int kind, std::optional<bool> own) { library::force_products(static_cast<library::ProductKind>(kind), own); },
      nb::arg("kind"), nb::arg("own").none(), "For this process, instead of what was chosen; None: no longer.");
  m.def("keep_choices_in", &library::keep_choices_in, nb::arg("path"),
        "The file of what is chosen by measuring (Note [Choices stay]); empty: it is kept nowhere.");
  m.def(
      "product_kind",
      [](int64_t batch, int64_t m, int64_t n, int64_t k, std::pair<int64_t, int64_t> a, std::pair<int64_t, int64_t> b) {
        library::Batched p{};
        p.m = m, p.n = n, p.k = k;
        p.a.row = a.first, p.a.column = a.second, p.b.row = b.first, p.b.column = b.second;
        p.batch.ndim = 1;
        p.batch.shape[0] = batch;
        return static_cast<int>(library::kind_of(p));
      },
      nb::arg("batch"), nb::arg("m"), nb::arg("n"), nb::arg("k"), nb::arg("a"), nb::arg("b"),
      "The kind of a product, given the strides of its operands.");
  m.def(
      "prefers_own_products", [](int kind) { return library::prefers_own(static_cast<library::ProductKind>(kind)); },
      nb::arg("kind"));
  m.def(
      "suggests_own_products", [](int kind) { return library::suggested(static_cast<library::ProductKind>(kind)); },
      nb::arg("kind"));
  m.def("prefer_convolutions", &library::prefer_convolutions, nb::arg("way"),
        "One way (tandem/machine/tune.py, WAYS) for all convolutions that it takes; -1: as measured, or suggested.");
  m.def("set_convolution_budget", &library::set_convolution_budget, nb::arg("seconds"),
        "Seconds that this process may spend on measuring convolutions from now on.");
  m.def("library_isa", [] { return library::kernels().name; });
  m.def(
      "set_switch",
      [](const std::string& name, int value) {
        const std::pair<const char*, std::atomic<int>*> known[] = {
            {"AHEAD", &switches::ahead},       {"EARLY", &switches::early}, {"ISA", &switches::isa},
            {"LAUNCHER", &switches::launcher}, {"ORDER", &switches::order}, {"TUNE", &switches::tune},
            {"WINOGRAD", &switches::winograd},
        };
        for (auto& [known_name, setting] : known)
          if (name == known_name) return setting->store(value);
        fail(ErrorKind::Internal, "no switch ", name);
      },
      nb::arg("name"), nb::arg("value"));
}

}  // namespace tandem
