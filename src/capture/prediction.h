// The calls of a segment as they were the last time, which the next ones are compared with.
//
// Note [Predicted calls]
// A compiled function mostly makes the same calls as last time. Working each of them out again (its signature, plan,
// sizes, what its operands are, the bytes of its key) takes longer than running a small operator. So once a sequence of
// calls has come twice, it is written down, and later ones are compared with it as they are made: the operator, the
// modes, the static arguments, and for each tensor where it comes from, its geometry and whether it wants a gradient.
// What a call gives then has the geometry that it had; tensors and records are made as ever, and nothing else is.
//
// Every value that a call may have as an operand has a *slot*: tensors from outside (leaves), results, and temporaries
// that backward reads. While calls are predicted, a slot knows the storage, version and address that it has this time.
// A tensor is that of a slot if all of these are; a new leaf must be on memory that no other slot is on, or on that of
// the leaf that it was with before. So by induction the capture is the very one that would have been made.
//
// A write through a view of deferred memory gives the base anew by calls of ours (Note [Captured view writes]), which
// are predicted as all others; views that show it from then on stand for the slots of what was selected for them
// (aliases).
//
// A call that is not the predicted one ends this: what was predicted so far is filled into the capture as if it had
// been captured (Capture::stop_predicting), and the calls go on as usual. So does whoever asks the capture anything
// that slots do not tell. When a segment ends where it did, and the same results are held by somebody, its program is
// found without a key.
#pragma once
#include <Python.h>

#include <cstdint>
#include <vector>

#include "autograd/record.h"
#include "modes.h"
#include "operators/op_function.h"
#include "plan/plan.h"
#include "tensor/default_dtype.h"

namespace tandem {

struct CallModes {  // all that a call depends on besides its arguments
  GradMode grad;
  CallMode call;
  DType floats;
  int16_t scope;
  static CallModes now() { return {grad_mode, call_mode, default_float, device_scope}; }
  bool operator==(const CallModes& o) const {
    return grad.enabled == o.grad.enabled && grad.inference == o.grad.inference && call.device == o.call.device &&
           call.autocast == o.call.autocast && call.axes_first == o.call.axes_first && floats == o.floats &&
           scope == o.scope;
  }
};

struct PredictedArgument {
  Argument::Kind kind;
  bool is_new = false;         // a tensor: the first that is seen of this leaf
  bool requires_grad = false;  // of the tensor
  bool inference = false;
  bool is_written = false;
  bool has_history = false;  // of one that is written
  bool is_fixed = false;     // a static value that the same object always has
  int32_t slot = -1;         // of a tensor
  union {
    int64_t integer = 0;  // an Int or a Count
    PyObject* object;     // a static value (owned)
  };
};

struct PredictedResult {
  // Fresh: memory of its own. Written: the argument. Same: the argument, with no slot. View: of the argument's memory.
  enum class Kind : uint8_t { Fresh, Written, Same, View } kind;
  int32_t slot = -1;
  int32_t argument = -1;
  int64_t offset = 0;  // View: from the argument's address, in bytes
};

struct PredictedCall {
  OpFunction* op = nullptr;  // owned
  Ref<Plan> plan;
  CallModes modes;
  bool recorded;
  int64_t advance = 0;  // of the stream of random numbers
  // Each from here to the first of the next call, in the lists of the prediction.
  int32_t arguments, results, temporaries, ints, slots;
  size_t key_end;                    // of the bytes of the key
  std::vector<int32_t> plan_values;  // of the temporaries
};

struct PredictedSlot {
  SavedView view;  // without an address, but where the memory is deferred: its offset
  size_t bytes = 0;
  int device = 0;
  bool requires_grad = false;  // of a leaf
  bool is_borrowed = false;    // of a leaf: its memory is somebody else's
  int32_t shares = -1;         // of a leaf: the first one on the same storage
  int64_t distance = 0;        // from its address
};

class Prediction {
 public:
  Prediction() = default;
  Prediction(const Prediction&) = delete;
  ~Prediction();

  struct Escaping {  // a result that somebody holds at the end
    int32_t deferred, slot;
    View view;
  };
  std::vector<PredictedCall> calls;  // and one more, for where the lists end
  std::vector<PredictedArgument> arguments;
  std::vector<PredictedResult> results, temporaries;
  std::vector<int64_t> ints;  // that backward is given
  std::vector<PredictedSlot> slots;
  std::vector<int32_t> leaves;    // slots
  std::vector<int32_t> deferred;  // slots of deferred memory, in order
  std::vector<Escaping> escaping;
  std::vector<int64_t> int_arguments;  // of all calls, in order
  bool writes = false;                 // memory that was there before
  uint64_t plans_cleared = 0;          // PlanCache::num_cleared then
  int misses = 0;                      // in a row

  size_t num_calls() const { return calls.size() - 1; }
  // Whether two were made of calls with the same sizes.
  bool alike(const Prediction& other) const;
};

// What a slot is in the calls that are being made.
struct SlotState {
  Storage* storage;  // held by the capture
  char* data;
  uint32_t version;
};

}  // namespace tandem
