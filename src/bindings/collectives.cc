// Groups of ranks for Python: what tandem/distributed is made of.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include "bindings/bindings.h"
#include "collectives/member.h"
#include "collectives/reduce.h"
#include "dispatch/op_function.h"
#include "memory/allocator.h"
#include "memory/shared_heap.h"
#include "tensor/dtype.h"

namespace nb = nanobind;

namespace tandem {

using namespace collectives;

namespace {

unsigned long main_thread = 0;

// Signals are looked at by the main thread, which alone gets them. The GIL is not held.
void look_for_signals() {
  if (PyThread_get_thread_ident() != main_thread) return;
  PyGILState_STATE state = PyGILState_Ensure();
  const bool stop = PyErr_CheckSignals() != 0;
  PyGILState_Release(state);
  if (stop) throw PythonError{};
}

int begin_heap() {
  const int descriptor = heap::begin();
  if (descriptor >= 0) empty_cache();  // what is allocated from now on lies there
  return descriptor;
}

}  // namespace

void register_collectives(nb::module_& m) {
  main_thread = PyThread_get_thread_ident();
  check_interrupt = &look_for_signals;

  nb::class_<Board>(m, "Board", "The memory that the ranks of a group on one host share.")
      .def_static("create", &Board::create, nb::arg("size"), nb::arg("shared"))
      .def_static("attach", &Board::attach, nb::arg("descriptor"), "Takes the descriptor over.")
      .def_prop_ro("descriptor", &Board::descriptor)
      .def_prop_ro("size", &Board::size);

  nb::class_<Communicator>(m, "Communicator", "A rank's part in a group.")
      .def_prop_ro("rank", &Communicator::rank)
      .def_prop_ro("size", &Communicator::size)
      .def("leave", &Communicator::leave, nb::arg("failed"), nb::arg("text"), nb::call_guard<nb::gil_scoped_release>())
      .def("records",
           [](const Communicator& self) {
             nb::list all;
             for (const Record& r : self.records())
               all.append(nb::make_tuple(r.rank, r.sequence, r.text, r.done, r.age));
             return all;
           })
      .def("await_question", &Communicator::await_question, nb::arg("seconds"),
           nb::call_guard<nb::gil_scoped_release>())
      .def("answer", &Communicator::answer, nb::arg("where"))
      .def("set_timeout", &Communicator::set_timeout, nb::arg("seconds"));

  nb::class_<Member, Communicator>(m, "Member", "A rank of a group on one host.")
      .def(nb::init<std::shared_ptr<Board>, int, std::vector<int>>(), nb::arg("board"), nb::arg("rank"),
           nb::arg("names"))
      .def("connect", &Member::connect, nb::arg("rank"), nb::arg("pid"), nb::arg("heap"));

  nb::class_<Context>(m, "RankContext", "The groups of a rank, by token.")
      .def(nb::init<>())
      .def("put", &Context::put, nb::arg("token"), nb::arg("communicator").none())
      .def_static("enter", &Context::enter, nb::arg("context").none(), "Has this thread be that rank.")
      .def_static("set_default", &Context::set_default, nb::arg("context").none());

  m.def("begin_shared_heap", &begin_heap, "The descriptor of memory that other processes can map; -1: there is none.");
  m.def("pause_shared_heap", &heap::pause);
  m.def(
      "reduction_is_defined",
      [](int dtype, int reduction) { return is_defined(static_cast<DType>(dtype), static_cast<Reduction>(reduction)); },
      nb::arg("dtype"), nb::arg("reduction"));
}

}  // namespace tandem
