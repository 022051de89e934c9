// Sequences of calls that have run as cells before, known again while they are deferred.
//
// Note [Sequences]
// Calls of a cell (Note [Cells] in cells.h) come in the same order each time. Once a cell has been compiled, its calls,
// and those that were made between them, are a sequence: a path in a tree of calls. While calls follow such a path,
// nothing of theirs has to be worked out: the operator, where its operands come from, and their geometry are compared,
// and plan and the geometry of results are those of the last time. Nothing is captured of them but what they take from
// outside, and their results (following.cc). At the end of a path, when the next call comes, the function that made the
// calls has returned; what only its variables held has gone, and the calls become one deferred call, of the cell. Where
// somebody still holds a result that is used inside when the cell is to run, calls are made of it again (Note
// [Gradients of rows] in records.h says why). A call that is not what was expected makes deferred calls of those before
// it. Views are no calls, and change nothing. Calls that come often, but in no sequence (what a recursion computes
// before it goes down, and takes when it is back), are known again each by itself.
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
  int32_t call = -1, output = 0;  // of the sequence, that it is a view of; or from outside:
  int32_t same_as = -1;           // the one, of all from outside, that it must be; -1: it is another one
  bool is_parameter = false;      // or what is none
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
  struct Taken {                                       // an operand of the deferred call
    int32_t outside = -1;  // its number among those from outside of the sequence; or that of a call inside:
    int32_t call = -1, position = -1, inside = -1;  // the number of its operand, and that among all those from inside
  };
  std::vector<Taken> taken;
  std::vector<int32_t> parameters;  // which of these are parameters
  std::shared_ptr<CellFunction> function;
  std::vector<bool> watched;  // by result of the cell: its gradient comes from inside, too
  bool records = false;
  bool all_members = false;  // no call among those of the cell is not of it
  uint64_t batch = 0;
  int32_t kind = -1;  // with these parameters:
  std::vector<const Tensor*> known;
};

struct SequenceNode {
  SequenceCall call;
  std::vector<std::unique_ptr<SequenceNode>> next;
  std::unique_ptr<Sequence> end;  // ends here
  bool is_alone() const { return next.empty() && !end; }
};

// Where sequences that begin with this operator begin; kept for good. GIL.
using SequenceStarts = std::vector<std::unique_ptr<SequenceNode>>;
constexpr size_t kMostSequences = 1024;

}  // namespace tandem
