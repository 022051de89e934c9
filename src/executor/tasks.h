// What dataflow nodes run: plans, and Python functions.
#pragma once
#include <Python.h>

#include <memory>
#include <mutex>
#include <vector>

#include "executor/flow.h"
#include "executor/run_lock.h"
#include "executor/tensor_payload.h"
#include "fork_guard.h"
#include "operators/op_function.h"

namespace tandem {

// A variable's place in a session: its tensor, or null before it has a value. Memory is written under the session's
// RunLock; the pointer changes under the lock and the GIL.
struct VariableCell {
  PyObject* tensor = nullptr;  // owned
  VariableCell() = default;
  VariableCell(const VariableCell&) = delete;
  ~VariableCell() { Py_XDECREF(tensor); }
};

// State that tasks of one run share.
struct RunState {
  RunLock* lock = nullptr;
  std::vector<VariableCell*> cells;
  uint64_t seed = 0;
  PyObject* context = nullptr;  // what Python tasks of the run are given, borrowed
};

// An operator function (inputs: list of tensors, generator) run by its plans: Python is entered for a new signature
// only. Inputs are variables (cells of the run's state), then tokens; results are tokens, then new values of variables.
//
// A plan runs on the device of the inputs; one of a device is queued on the stream of whoever runs the graph, with the
// GIL, like an eager operator.
class PlanTask final : public flow::Task {
 public:
  PlanTask(PyObject* function, std::vector<int32_t> read, std::vector<int32_t> written);  // GIL; takes a reference
  ~PlanTask() override;
  void run(flow::Token* inputs, int num_inputs, flow::Token* outputs, int num_outputs,
           const flow::Place& place) override;

 private:
  struct Operand {
    const View* view;
    int device;
  };
  const Plan* compile(const std::vector<Operand>& operands, uint64_t seed, const Signature& signature);
  void execute(flow::Token* inputs, int num_inputs, flow::Token* outputs, int num_outputs, const flow::Place& place);
  void finish(const Plan& plan, PlanRun& run, flow::Token* inputs, flow::Token* outputs, int num_outputs,
              RunState& state);

  OpFunction* function_;  // owned
  std::vector<int32_t> read_, written_;
  struct Variant {
    std::vector<uint8_t> signature;
    Ref<Plan> plan;  // kept until the task goes, so that a run may use it without the GIL
  };
  std::mutex mutex_;  // guards variants_
  ForkGuard fork_{mutex_};
  std::vector<Variant> variants_;
};

// A Python function of tensors that gives a list of tensors. A blocking one gets a thread of its own. One that is
// `placed` is told the run's context, the key of the iteration and whether it is dead; None as a result stands for dead
// ones.
class PythonTask final : public flow::Task {
 public:
  PythonTask(PyObject* function, bool blocking, bool placed);  // GIL; takes a reference
  ~PythonTask() override;
  void run(flow::Token* inputs, int num_inputs, flow::Token* outputs, int num_outputs,
           const flow::Place& place) override;
  bool blocking() const override { return blocking_; }
  bool waits_here() const override { return placed_; }

 private:
  PyObject* function_;
  bool blocking_, placed_;
};

}  // namespace tandem
