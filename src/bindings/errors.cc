#include "raise.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bindings/bindings.h"
#include "operators/op_function.h"
#include "places.h"

namespace nb = nanobind;

namespace tandem {
namespace {

const char* kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Internal:
      return "Internal";
    case ErrorKind::Shape:
      return "Shape";
    case ErrorKind::Type:
      return "Type";
    case ErrorKind::Index:
      return "Index";
    case ErrorKind::Value:
      return "Value";
    case ErrorKind::Memory:
      return "Memory";
    case ErrorKind::Autograd:
      return "Autograd";
    case ErrorKind::Device:
      return "Device";
    case ErrorKind::Unsupported:
      return "Unsupported";
    case ErrorKind::LinAlg:
      return "LinAlg";
    case ErrorKind::Distributed:
      return "Distributed";
    case ErrorKind::Deadline:
      return "Deadline";
    case ErrorKind::Division:
      return "Division";
  }
  return "Internal";
}

PyObject*& error_factory() {
  static PyObject* factory = nullptr;  // kind, message, fix, op, source, place -> exception
  return factory;
}

}  // namespace

static void raise_as(const Error& error, nb::object op);

void raise_python(const Error& error) {
  raise_as(error, nb::none());
}

void raise_operator_error(OpFunction* op, const Error& error) {
  raise_as(error, nb::borrow(op->name));
}

static void raise_as(const Error& error, nb::object op) {
  constexpr std::string_view marker = "\n  fix: ";
  std::string_view text = error.what();
  size_t at = text.rfind(marker);
  try {
    if (!error_factory())
      error_factory() = nb::object(nb::module_::import_("tandem.errors").attr("from_runtime")).release().ptr();
    nb::object fix = nb::none();
    if (at != text.npos) {
      std::string_view advice = text.substr(at + marker.size());
      fix = nb::str(advice.data(), advice.size());
      text = text.substr(0, at);
    }
    nb::object source = nb::none();
    if (const Origin* origin = error.origin.get()) {
      op = nb::str(origin->op.c_str());
      if (!origin->file.empty()) source = nb::make_tuple(origin->file, origin->line, origin->function);  // -> Source
    }
    PyObject* place = place_of(error.origin);
    nb::object exception = nb::handle(error_factory())(kind_name(error.kind), nb::str(text.data(), text.size()), fix,
                                                       op, source, place ? nb::borrow(place) : nb::none());
    if (error.origin && error.origin->call <= -2) exception.attr("_call") = -2 - error.origin->call;  // Capture::today
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  } catch (nb::python_error& failure) {
    failure.restore();
  }
}

void raise_current_exception() noexcept {
  if (PyErr_Occurred()) return;  // the exception says only that
  try {
    throw;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const Error& error) {
    raise_python(error);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const nb::builtin_exception& error) {
    PyErr_SetString(PyExc_TypeError, error.what() ? error.what() : "wrong type");
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "unknown C++ exception");
  }
}

void register_errors(nb::module_& m) {
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const Error& error) {
      raise_python(error);
    }
  });
  m.def(
      "set_error_factory",
      [](nb::object factory) {
        PyObject* before = error_factory();
        error_factory() = factory.release().ptr();
        Py_XDECREF(before);
      },
      nb::arg("factory"),
      "Have errors of the runtime made by factory(kind, message, fix, op, source, place); tandem.errors.from_runtime "
      "unless set.");
  m.def(
      "set_modules_here",
      [](nb::object here) {
        Py_XDECREF(modules_here);
        modules_here = here.release().ptr();
      },
      nb::arg("here"), "What to ask for the modules that run where an error may show late (module_calls.here).");
}

}  // namespace tandem
