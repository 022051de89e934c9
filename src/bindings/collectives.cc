// Groups of ranks for Python: what tandem/distributed is made of.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "bindings/bindings.h"
#include "bindings/tensor_convert.h"
#include "collectives/background.h"
#include "collectives/gloo_network.h"
#include "collectives/hosts_member.h"
#include "collectives/member.h"
#include "collectives/mpi.h"
#include "collectives/mpi_network.h"
#include "collectives/reduce.h"
#include "known_source.h"
#include "memory/allocator_impl.h"
#include "memory/shared_heap.h"
#include "operators/op_function.h"
#include "tensor/dtype.h"
#include "tensor/node.h"

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

// A tensor that stays and is met again by a collective goes where other ranks can look at it; nobody else may know its
// address.
bool move_to_heap(TensorRef tensor) {
  Tensor* t = tensor.get();
  Storage* from = t->storage;
  if (!from || from->pending() || !from->on_host() || heap::holds(from->data()) || from->bytes() <= blocks::kSmallMax ||
      !heap::is_wanted(blocks::large_block(from->bytes())))
    return false;
  if (from->references() > 1 || from->borrowed() || !from->writable() || !t->is_leaf() || (t->extra && t->extra->base))
    return false;
  Storage* to = Storage::allocate(from->bytes());
  std::memcpy(to->data(), from->data(), from->bytes());
  t->view.data = to->data() + (t->view.data - from->data());
  t->storage = to;
  from->release();
  return true;
}

// Python functions that are called while the GIL is not held. Never freed: groups may end after the interpreter.
HostsMember::Ask called(const nb::object& function) {
  auto* kept = new nb::object(function);
  return [kept](int64_t number) -> std::string {
    const nb::gil_scoped_acquire held;
    try {
      return nb::cast<std::string>((*kept)(number));
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("a question to other ranks");
      return "";
    }
  };
}

HostsMember::Report called_with(const nb::object& function) {
  auto* kept = new nb::object(function);
  return [kept](const std::string& text) {
    const nb::gil_scoped_acquire held;
    try {
      (*kept)(text);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("a report to other ranks");
    }
  };
}

void connect_by_gloo(GlooMesh* self, const std::string& library, int rank, int size, const std::string& address,
                     const std::string& place, const nb::object& set, const nb::object& get) {
  const auto guarded = [](auto&& call) {
    const nb::gil_scoped_acquire held;
    try {
      return call();
    } catch (nb::python_error& error) {
      throw std::runtime_error(error.what());  // its text, as the exception belongs to this GIL
    }
  };
  const nb::gil_scoped_release released;
  new (self) GlooMesh(
      library, rank, size, address, place,
      [&](const std::string& key, const std::string& value) {
        guarded([&] { set(key, nb::bytes(value.data(), value.size())); });
      },
      [&](const std::string& key) {
        return guarded([&] {
          const nb::bytes value(get(key));
          return std::string(value.c_str(), value.size());
        });
      });
}

// The line that called, for a collective that another thread runs.
class CallerSource {
 public:
  CallerSource() : source_(user_source()) {}
  ~CallerSource() { interpreter.release(source_.code); }
  CallerSource(const CallerSource&) = delete;
  void enter() { before_ = std::exchange(known_source, &source_); }
  void leave() { known_source = before_; }

 private:
  const Source source_;
  const Source* before_ = nullptr;
};

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
      .def(
          "queue_up", [](Communicator& self) { self.background().queue_up(); },
          "A collective is given to a thread; those that are called from now on come after it.")
      .def("queue_done", [](Communicator& self) { self.background().queue_done(); }, "That thread has run one.")
      .def("leave", &Communicator::leave, nb::arg("failed"), nb::arg("text"), nb::call_guard<nb::gil_scoped_release>())
      .def("records",
           [](const Communicator& self) {
             nb::list all;
             for (const Record& r : self.records())
               all.append(nb::make_tuple(r.rank, r.sequence, r.text, r.done, r.age));  // -> FlightRecord
             return all;
           })
      .def("await_question", &Communicator::await_question, nb::arg("seconds"),
           nb::call_guard<nb::gil_scoped_release>())
      .def("answer", &Communicator::answer, nb::arg("where"))
      .def("set_timeout", &Communicator::set_timeout, nb::arg("seconds"));

  nb::class_<OnDevices, Communicator>(m, "DeviceCommunicator", "A rank's part in a group, also for tensors on devices.")
      .def("require_nccl", &OnDevices::require_nccl, "CUDA tensors never go through host memory.");

  nb::class_<Member, OnDevices>(m, "Member", "A rank of a group on one host.")
      .def(nb::init<std::shared_ptr<Board>, int, std::vector<int>>(), nb::arg("board"), nb::arg("rank"),
           nb::arg("names"))
      .def("connect", &Member::connect, nb::arg("rank"), nb::arg("pid"), nb::arg("heap"));

  nb::class_<World>(m, "World", "The ranks that were formed together on several hosts.")
      .def(nb::init<>())
      .def("tell", &World::tell, nb::arg("failure"), "A rank has failed: whoever waits gives up.",
           nb::call_guard<nb::gil_scoped_release>());

  nb::class_<GlooMesh>(m, "GlooMesh", "Connections to all other ranks, by Gloo.")
      .def("__init__", &connect_by_gloo, nb::arg("library"), nb::arg("rank"), nb::arg("size"), nb::arg("address"),
           nb::arg("place"), nb::arg("set"), nb::arg("get"));

  m.def(
      "opens_nccl", [] { return nccl::api(nullptr) != nullptr; }, nb::call_guard<nb::gil_scoped_release>(),
      "Whether NCCL can be opened.");
  m.def("begin_mpi", &mpi::begin, nb::arg("path"), nb::call_guard<nb::gil_scoped_release>(),
        "Opens MPI's library and has this process join the others; gives the library's name.");

  nb::class_<HostsMember, OnDevices>(m, "HostsMember", "A rank of a group on several hosts.")
      .def_static(
          "by_mpi",
          [](std::shared_ptr<World> world, std::vector<int> ranks, int rank, int tag, bool is_world) {
            if (world->is_over()) fail(ErrorKind::Distributed, world->why());
            auto network = std::make_unique<MpiNetwork>(ranks, tag, is_world);
            return std::make_shared<HostsMember>(std::move(world), std::move(network), std::move(ranks), rank);
          },
          nb::arg("world"), nb::arg("ranks"), nb::arg("rank"), nb::arg("tag"), nb::arg("is_world"),
          nb::call_guard<nb::gil_scoped_release>(), "All ranks of the group make it at the same time.")
      .def_static(
          "by_gloo",
          [](std::shared_ptr<World> world, std::shared_ptr<GlooMesh> mesh, std::vector<int> ranks, int rank, int tag) {
            auto network = std::make_unique<GlooNetwork>(std::move(mesh), ranks, rank, tag);
            return std::make_shared<HostsMember>(std::move(world), std::move(network), std::move(ranks), rank);
          },
          nb::arg("world"), nb::arg("mesh"), nb::arg("ranks"), nb::arg("rank"), nb::arg("tag"))
      .def("let_send_by_device", &HostsMember::let_send_by_device, "As all ranks have NCCL.")
      .def("note_left", &HostsMember::note_left, nb::arg("rank"), nb::arg("number"))
      .def_prop_ro("entered", &HostsMember::entered, "How many calls there were.")
      .def(
          "connect",
          [](HostsMember& self, nb::object ask, nb::object report) { self.connect(called(ask), called_with(report)); },
          nb::arg("ask"), nb::arg("report"),
          "ask(number) says where other ranks are; report(text) that this one gave up.");

  nb::class_<CallerSource>(m, "CallerSource", "The user's line that called, for work that another thread does.")
      .def(nb::init<>())
      .def("enter", &CallerSource::enter, "From now on it is the line of this thread,")
      .def("leave", &CallerSource::leave, "up to here.");

  nb::class_<Context>(m, "RankContext", "The groups of a rank, by token.")
      .def(nb::init<int>(), nb::arg("rank_in_process") = 0)
      .def("put", &Context::put, nb::arg("token"), nb::arg("communicator").none())
      .def_static("enter", &Context::enter, nb::arg("context").none(), "Has this thread be that rank.")
      .def_static("set_default", &Context::set_default, nb::arg("context").none());

  m.def("serve_queue", &Background::serve_queue, "This thread runs what queue_up announces.");
  m.def("begin_shared_heap", &heap::begin, "The descriptor of memory that other processes can map; -1: there is none.");
  m.def("pause_shared_heap", &heap::pause);
  m.def("move_to_shared_heap", &move_to_heap, nb::arg("tensor"),
        "Moves a tensor whose memory nobody else has to where other ranks can look at it, if its size is one that "
        "collectives have met; whether that was done.");
  m.def(
      "reduction_is_defined",
      [](int dtype, int reduction) { return is_defined(static_cast<DType>(dtype), static_cast<Reduction>(reduction)); },
      nb::arg("dtype"), nb::arg("reduction"));
}

}  // namespace tandem
