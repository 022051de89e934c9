// Sequences of calls that have run as cells before, known again while they are deferred.
//
// Note [Sequences]
// Calls of a cell (Note [Cells] in cells.h) come in the same order each time. Once a cell has been compiled, its calls,
// and those that were made between them, are a sequence: a path in a tree of calls. While calls follow such a path,
// nothing of theirs has to be worked out: the operator, where its operands come from, and their geometry are compared,
// and plan, kind and the geometry of results are those of the last time. At the end of a path, when the next call
// comes, the function that made the calls has returned; what only its variables held has gone, and the calls become one
// deferred call, of the cell. Where somebody still holds a result that is used inside when the cell is to run, calls
// are made of it again (Note [Gradients of rows] in records.h says why). So memory is needed for cells, not for calls.
// A call that is not what was expected is deferred as usual, and those before it stay what they are.
#pragma once
#include <Python.h>

#include <memory>
#include <vector>

#include "autobatch/group_call.h"
#include "autograd/record.h"
#include "modes.h"
#include "operators/op_function.h"
#include "plan/plan.h"

namespace tandem {

struct SequenceOperand {
  int32_t call = -1, output = 0;      // of the sequence, that it is a view of; or from outside:
  bool is_parameter = false;          // or what is none
  const Tensor* parameter = nullptr;  // the one in this batch (SequenceCall::batch); only compared
  bool requires_grad = false;
  bool is_view = false;  // of another call's result, with a record of its own
  SavedView view;        // data: an offset
};

struct SequenceCall {
  OpFunction* op = nullptr;  // all that is Python's is held
  Ref<Plan> plan;
  const void* code = nullptr;
  int32_t instruction = 0;
  Source source;
  CallMode mode;
  bool inference = false, grad = false, joins = false;
  DType float_type = DType::Float32;  // the default
  std::vector<Argument> arguments;    // tensors are null
  std::vector<SequenceOperand> operands;
  struct Output {
    SavedView view;
    size_t bytes;
    bool wants_grad;
  };
  std::vector<Output> outputs;
  int device = 0;

  uint64_t batch = 0;  // of the numbers that follow
  int32_t kind = -1;
  std::vector<int32_t> geometries;
};

bool same_argument(const Argument& a, const Argument& b);  // but for tensors
bool same_call(const SequenceCall& a, const SequenceCall& b);

struct Sequence {
  std::vector<SequenceCall*> calls;
  std::vector<int32_t> cell_of;                        // by call: its number in the cell, or -1
  std::vector<std::pair<int32_t, int32_t>> externals;  // of the cell: (call, operand), or -1 for all of a call's
  std::vector<std::pair<int32_t, int32_t>> operands;   // of each of them: the first of the deferred call, and how many
  std::vector<std::vector<int32_t>> outside_of;        // by call and operand: which of them it is, or -1
  std::shared_ptr<CellFunction> function;
  std::vector<bool> watched;  // by result of the cell: its gradient comes from inside, too
  bool records = false;
  uint64_t batch = 0;
  int32_t kind = -1;
};

struct SequenceNode {
  SequenceCall call;
  std::vector<std::unique_ptr<SequenceNode>> next;
  std::unique_ptr<Sequence> end;  // ends here
};

// Where sequences that begin with this operator begin; kept for good. GIL.
using SequenceStarts = std::vector<std::unique_ptr<SequenceNode>>;
constexpr size_t kMostSequences = 1024;

}  // namespace tandem
