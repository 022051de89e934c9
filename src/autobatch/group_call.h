// The operator function that runs many calls of one plan as one, and its arguments.
#pragma once
#include <Python.h>

#include <map>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include "autobatch/records.h"
#include "operators/op_function.h"
#include "plan/plan.h"

namespace tandem {

// Of a plan, for which of its tensors differ between members, and so have an axis more.
struct GroupFunction {
  GroupFunction(PyObject* op, Ref<Plan> plan) : op(op), plan(std::move(plan)) {}
  GroupFunction(const GroupFunction&) = delete;
  ~GroupFunction() { Py_XDECREF(op); }
  OpFunction* function() const { return reinterpret_cast<OpFunction*>(op); }
  PyObject* op;         // owned
  Ref<Plan> plan;       // keeps the address in the key its own
  bool failed = false;  // there is no batching rule
};

std::shared_ptr<GroupFunction> group_function(const Ref<Plan>& plan, const std::vector<bool>& flags);

// The same of a cell, whose calls take from one another; see Note [Cells] in cells.h. Kept by what cells are alike in.
struct CellFunction {
  CellFunction() = default;
  CellFunction(const CellFunction&) = delete;
  ~CellFunction();
  struct Call {
    Ref<Plan> plan;
    PyObject* operands;         // owned, for Python: where each comes from
    std::vector<bool> outputs;  // which of its results are wanted outside, so far
    bool joins = false;         // it is what it takes: see Note [Joined rows] in join.cc
  };
  // Threads share cells: what one of them runs stays as it is while another wants more outputs.
  struct Program {
    explicit Program(const std::vector<Call>& calls) {
      for (const Call& call : calls) outputs.push_back(call.outputs);
    }
    Program(const Program&) = delete;
    ~Program() { Py_XDECREF(op); }
    OpFunction* function() const { return reinterpret_cast<OpFunction*>(op); }
    PyObject* op = nullptr;                  // owned
    std::vector<std::vector<bool>> outputs;  // those of calls that it gives
  };
  // flags: which tensors from outside differ between members
  std::shared_ptr<Program> program(const std::vector<bool>& flags);
  void add_output(size_t call, size_t output);
  std::vector<Call> calls;
  int64_t seen = 0;                      // how many cells
  bool failed = false;                   // there is no batching rule, or no way to say what a call takes from another
  std::unordered_set<uint64_t> learned;  // with what geometry sequences have been learned (sequences.h)
  bool made() const { return !programs_.empty(); }
  std::shared_ptr<ResultsUsed> used_in(uint64_t batch, size_t results) {
    if (!used_ || used_->batch != batch || used_->used.size() != results)
      used_ = std::make_shared<ResultsUsed>(ResultsUsed{batch, std::vector<bool>(results)});
    return used_;
  }

 private:
  std::map<std::vector<bool>, std::shared_ptr<Program>> programs_;
  std::shared_ptr<ResultsUsed> used_;
};

// Arguments of an operator, and what keeps them alive.
struct CallArguments {
  SmallVector<Argument, 20> list;
  SmallVector<TensorRef, 8> owned;
  void tensor(TensorRef t) {
    Argument& a = list.emplace_back();
    a.kind = Argument::Kind::Tensor;
    a.tensor = t.get();
    owned.push_back(std::move(t));
  }
  void integer(Argument::Kind kind, int64_t value, PyObject* object = nullptr) {
    Argument& a = list.emplace_back();
    a.kind = kind;
    a.integer = value;
    a.object = object;
  }
};

// Results in memory of their own, rows one after the other.
void own_blocks(TensorList& blocks, const CallArguments& arguments);

bool is_number(Argument::Kind kind);

}  // namespace tandem
