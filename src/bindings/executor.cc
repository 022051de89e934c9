// Dataflow graphs for Python: what tandem/session/dataflow.py is made of.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>

#include "bindings/bindings.h"
#include "bindings/tensor_convert.h"
#include "capture/capture.h"
#include "check.h"
#include "executor/run.h"
#include "executor/run_lock.h"
#include "executor/tasks.h"
#include "raise.h"

namespace nb = nanobind;

namespace tandem {

namespace {

struct FlowBuilder {
  std::vector<flow::NodeSpec> specs;

  int32_t add(int kind, const std::vector<std::pair<int32_t, int32_t>>& inputs, std::vector<int32_t> controls,
              std::vector<int32_t> orders, int32_t num_outputs, std::shared_ptr<flow::Task> task, int32_t frame,
              bool constant, int32_t parallel, bool always) {
    if (kind < 0 || kind > static_cast<int>(flow::Kind::Fetch)) fail(ErrorKind::Value, "there is no such kind of node");
    flow::NodeSpec spec;
    spec.kind = static_cast<flow::Kind>(kind);
    for (auto [node, output] : inputs) spec.inputs.push_back({node, output});
    spec.controls = std::move(controls);
    spec.orders = std::move(orders);
    spec.num_outputs = num_outputs;
    spec.task = std::move(task);
    spec.frame = frame;
    spec.constant = constant;
    spec.parallel = parallel;
    spec.always = always;
    specs.push_back(std::move(spec));
    return static_cast<int32_t>(specs.size()) - 1;
  }
};

struct FlowOutcome {
  nb::list results;  // tensors; None where a value was dead
  nb::object error;  // an exception, or None
  int32_t failed_node = -1;
  int64_t executed = 0, skipped = 0, most_iterations = 0;
};

nb::object as_exception(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const flow::Cancelled&) {
    return nb::none();
  } catch (...) {
    raise_current_exception();
  }
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace && value) PyException_SetTraceback(value, trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  return nb::steal(value);
}

FlowOutcome run_flow(const flow::Graph& graph, const nb::list& sources, const std::vector<VariableCell*>& cells,
                     RunLock* lock, uint64_t seed, int threads, std::shared_ptr<flow::Cancellation> cancellation,
                     nb::object context) {
  std::vector<flow::Token> tokens;
  for (nb::handle h : sources) {
    if (!is_tensor(h.ptr())) throw nb::type_error("sources must be tensors");
    auto* t = reinterpret_cast<Tensor*>(h.ptr());
    try {
      materialize(t);
    } catch (const PythonError&) {
      nb::raise_python_error();
    }
    tokens.push_back(token_of(t));
  }
  if (static_cast<int32_t>(tokens.size()) != graph.num_sources())
    fail(ErrorKind::Value, "the graph takes ", graph.num_sources(), " sources, not ", tokens.size());
  RunState state{lock, cells, seed, context.ptr()};
  nb::object signal;
  flow::Options options;
  options.threads = threads;
  options.state = &state;
  options.index = &index_token;
  options.cancellation = std::move(cancellation);
  // Threads that help are this one as far as operators can tell: its streams, default device and precision.
  std::array<cuda::Stream, cuda::kMaxDevices> streams;
  std::copy_n(cuda::current_streams, cuda::kMaxDevices, streams.begin());
  options.begin_thread = [streams, mode = call_mode] {
    std::copy_n(streams.begin(), cuda::kMaxDevices, cuda::current_streams);
    call_mode = mode;
  };
  options.interrupted = [&signal] {
    PyGILState_STATE gil = PyGILState_Ensure();
    bool stop = PyErr_CheckSignals() != 0;  // does nothing outside of the main thread
    if (stop) {
      PyObject *type, *value, *trace;
      PyErr_Fetch(&type, &value, &trace);
      PyErr_NormalizeException(&type, &value, &trace);
      signal = nb::steal(value);
      Py_XDECREF(type);
      Py_XDECREF(trace);
    }
    PyGILState_Release(gil);
    return stop;
  };
  flow::Outcome outcome;
  {
    nb::gil_scoped_release release;
    outcome = flow::run(graph, std::move(tokens), options);
  }
  FlowOutcome made;
  made.error = signal.is_valid() ? signal : outcome.failure ? as_exception(outcome.failure) : nb::none();
  if (outcome.failure && made.error.is_none())
    made.failed_node = -2;  // cancelled
  else
    made.failed_node = outcome.failed_node;
  for (flow::Token& token : outcome.fetched) {
    if (token)
      made.results.append(nb::steal(reinterpret_cast<PyObject*>(tensor_of(as_tensor(token)).leak())));
    else
      made.results.append(nb::none());
  }
  made.executed = outcome.executed;
  made.skipped = outcome.skipped;
  made.most_iterations = outcome.most_iterations;
  return made;
}

}  // namespace

void register_executor(nb::module_& m) {
  nb::class_<flow::Task>(m, "FlowTask");
  nb::class_<flow::Cancellation>(m, "Cancellation")
      .def(nb::init<>())
      .def("cancel", &flow::Cancellation::cancel, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("cancelled", &flow::Cancellation::cancelled);
  nb::class_<VariableCell>(m, "VariableCell")
      .def(nb::init<>())
      .def_prop_rw(
          "tensor", [](VariableCell& c) { return c.tensor ? nb::borrow(c.tensor) : nb::none(); },
          [](VariableCell& c, nb::object t) {
            if (!t.is_none() && !is_tensor(t.ptr())) throw nb::type_error("a variable holds a tensor");
            PyObject* before = std::exchange(c.tensor, t.is_none() ? nullptr : t.release().ptr());
            Py_XDECREF(before);
          },
          nb::arg().none());
  nb::class_<RunLock>(m, "RunLock")
      .def(nb::init<>())
      // Waiting lets go of the GIL: whoever holds the lock may need it.
      .def("acquire_read",
           [](RunLock& l) {
             if (l.try_lock_shared()) return;
             nb::gil_scoped_release release;
             l.lock_shared();
           })
      .def("acquire_write",
           [](RunLock& l) {
             if (l.try_lock()) return;
             nb::gil_scoped_release release;
             l.lock();
           })
      .def("release_read", &RunLock::unlock_shared)
      .def("release_write", &RunLock::unlock);
  nb::class_<flow::Graph>(m, "FlowGraph")
      .def("run", &run_flow, nb::arg("sources"), nb::arg("cells"), nb::arg("lock"), nb::arg("seed"), nb::arg("threads"),
           nb::arg("cancellation"), nb::arg("context") = nb::none())
      .def_prop_ro("num_nodes", [](const flow::Graph& g) { return g.nodes().size(); });
  nb::class_<FlowOutcome>(m, "FlowOutcome")
      .def_ro("results", &FlowOutcome::results)
      .def_ro("error", &FlowOutcome::error)
      .def_ro("failed_node", &FlowOutcome::failed_node)
      .def_ro("executed", &FlowOutcome::executed)
      .def_ro("skipped", &FlowOutcome::skipped)
      .def_ro("most_iterations", &FlowOutcome::most_iterations);
  nb::class_<FlowBuilder>(m, "FlowBuilder")
      .def(nb::init<>())
      .def("add", &FlowBuilder::add, nb::arg("kind"), nb::arg("inputs"), nb::arg("controls"), nb::arg("orders"),
           nb::arg("num_outputs"), nb::arg("task").none() = nb::none(), nb::arg("frame") = -1,
           nb::arg("constant") = false, nb::arg("parallel") = 10, nb::arg("always") = false)
      .def("build", [](FlowBuilder& b, int32_t num_frames) {
        if (num_frames < 1) fail(ErrorKind::Value, "a graph has at least one frame");
        return new flow::Graph(std::exchange(b.specs, {}), num_frames);
      });
  m.def(
      "plan_task",
      [](nb::object function, std::vector<int32_t> read, std::vector<int32_t> written) {
        return std::shared_ptr<flow::Task>(new PlanTask(function.ptr(), std::move(read), std::move(written)));
      },
      nb::arg("function"), nb::arg("read"), nb::arg("written"));
  m.def(
      "python_task",
      [](nb::object function, bool blocking, bool placed) {
        return std::shared_ptr<flow::Task>(new PythonTask(function.ptr(), blocking, placed));
      },
      nb::arg("function"), nb::arg("blocking"), nb::arg("placed") = false);
}

}  // namespace tandem
