// Queues for Python: what tandem/session/queues.py is made of.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "bindings/tensor_convert.h"
#include "capture/capture.h"
#include "check.h"
#include "queue/tensor_queue.h"

namespace nb = nanobind;

namespace tandem {

namespace {

// Waiting without the GIL. Signals are looked at by the main thread, which alone gets them.
class Waiting {
 public:
  Waiting(nb::handle timeout, flow::Cancellation* cancellation) {
    wait.cancellation = cancellation;
    if (!timeout.is_none()) {
      double seconds = PyFloat_AsDouble(timeout.ptr());
      if (seconds == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        fail(ErrorKind::Type, "a timeout is a number of seconds, or None");
      }
      if (!(seconds >= 0)) fail(ErrorKind::Value, "a timeout is a number of seconds, not ", seconds);
      seconds = std::min(seconds, 1e8);
      wait.deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
    }
    wait.sleep = [this] { state_ = PyEval_SaveThread(); };
    wait.awake = [this] { PyEval_RestoreThread(state_); };
    if (PyThread_get_thread_ident() == main_thread)
      wait.interrupted = [this] {
        PyEval_RestoreThread(state_);
        bool stop = PyErr_CheckSignals() != 0;
        state_ = PyEval_SaveThread();
        return stop;
      };
  }
  Waiting(const Waiting&) = delete;
  Queue::Wait wait;
  static inline unsigned long main_thread = 0;

 private:
  PyThreadState* state_ = nullptr;
};

int checked(Queue::Status status) {
  if (status == Queue::Status::Interrupted) {
    if (!PyErr_Occurred()) PyErr_SetNone(PyExc_KeyboardInterrupt);
    throw nb::python_error();
  }
  return static_cast<int>(status);
}

TensorQueue::Tensors tensors_of(const nb::tuple& given) {
  TensorQueue::Tensors tensors;
  for (nb::handle h : given) {
    if (!is_tensor(h.ptr())) throw nb::type_error("a queue holds tensors");
    auto* t = reinterpret_cast<Tensor*>(h.ptr());
    try {
      materialize(t);
    } catch (const PythonError&) {
      nb::raise_python_error();
    }
    tensors.push_back(t);
  }
  return tensors;
}

nb::object results(Queue::Status status, const std::vector<flow::Token>& tokens) {
  int code = checked(status);
  if (code != 0) return nb::int_(code);
  nb::list made;
  for (const flow::Token& t : tokens)
    made.append(nb::steal(reinterpret_cast<PyObject*>(tensor_of(as_tensor(t)).leak())));
  return made;
}

}  // namespace

void register_queue(nb::module_& m) {
  Waiting::main_thread = PyThread_get_thread_ident();
  nb::class_<TensorQueue>(m, "Queue")
      .def(
          "__init__",
          [](TensorQueue* self, std::string name, const nb::list& dtypes, const nb::list& shapes, int order,
             bool padding, int64_t capacity, int64_t min_after_dequeue, uint64_t seed) {
            std::vector<Component> components;
            for (size_t k = 0; k < dtypes.size(); ++k) {
              Component c;
              c.dtype = dtype_from_object(nb::object(dtypes[k]).ptr());
              nb::object shape = shapes[k];
              c.known = !shape.is_none();
              if (c.known) c.shape = nb::cast<std::vector<int64_t>>(shape);
              if (c.shape.size() + 1 > kMaxDims) fail(ErrorKind::Shape, "elements of a queue have too many axes");
              components.push_back(std::move(c));
            }
            if (components.empty()) fail(ErrorKind::Value, "elements of a queue need at least one component");
            if (order < 0 || order > 2) fail(ErrorKind::Value, "there is no such order");
            new (self) TensorQueue(std::move(name), std::move(components), static_cast<Queue::Order>(order), padding,
                                   capacity, min_after_dequeue, seed);
          },
          nb::arg("name"), nb::arg("dtypes"), nb::arg("shapes"), nb::arg("order"), nb::arg("padding"),
          nb::arg("capacity"), nb::arg("min_after_dequeue"), nb::arg("seed"))
      .def(
          "enqueue",
          [](TensorQueue& q, const nb::tuple& row, nb::object timeout, flow::Cancellation* cancellation) {
            Waiting waiting(timeout, cancellation);
            return checked(q.enqueue(tensors_of(row), waiting.wait));
          },
          nb::arg("row"), nb::arg("timeout").none() = nb::none(), nb::arg("cancellation").none() = nb::none())
      .def(
          "enqueue_many",
          [](TensorQueue& q, const nb::tuple& columns, nb::object timeout, flow::Cancellation* cancellation) {
            Waiting waiting(timeout, cancellation);
            return checked(q.enqueue_many(tensors_of(columns), waiting.wait));
          },
          nb::arg("columns"), nb::arg("timeout").none() = nb::none(), nb::arg("cancellation").none() = nb::none())
      .def(
          "dequeue",
          [](TensorQueue& q, nb::object timeout, flow::Cancellation* cancellation) {
            Waiting waiting(timeout, cancellation);
            std::vector<flow::Token> row;
            Queue::Status status = q.dequeue(row, waiting.wait);
            return results(status, row);
          },
          nb::arg("timeout").none() = nb::none(), nb::arg("cancellation").none() = nb::none())
      .def(
          "dequeue_many",
          [](TensorQueue& q, int64_t count, bool fewer, nb::object timeout, flow::Cancellation* cancellation) {
            Waiting waiting(timeout, cancellation);
            std::vector<flow::Token> columns;
            Queue::Status status = q.dequeue_many(count, fewer, columns, waiting.wait);
            return results(status, columns);
          },
          nb::arg("count"), nb::arg("fewer"), nb::arg("timeout").none() = nb::none(),
          nb::arg("cancellation").none() = nb::none())
      .def(
          "close", [](TensorQueue& q, bool cancel_pending) { q.queue().close(cancel_pending); },
          nb::arg("cancel_pending"))
      .def("size", [](TensorQueue& q) { return q.queue().size(); })
      .def_prop_ro("closed", [](TensorQueue& q) { return q.queue().closed(); })
      .def_prop_ro("capacity", [](TensorQueue& q) { return q.queue().capacity(); })
      .def("counts", [](TensorQueue& q) {
        Queue::Counts c = q.queue().counts();
        nb::dict made;
        made["enqueued"] = c.enqueued;
        made["dequeued"] = c.dequeued;
        made["producer_waits"] = c.producer_waits;
        made["consumer_waits"] = c.consumer_waits;
        made["most"] = c.most;
        return made;
      });
}

}  // namespace tandem
