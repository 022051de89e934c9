// Automatic batching: inside td.autobatch, operator calls are deferred, and those that are alike run as one.
//
// Note [Autobatch]
// A deferred call has its plan, so that shapes, types and errors are those of an eager call. Its results are deferred:
// tensors with sizes and a history, but no memory. When a value is needed, the calls that it needs run, and no others;
// at the end of the scope, all whose results somebody still holds. Calls are alike if they have one plan (operator,
// static values, types, what wants gradients), the same shapes and strides, the same numbers, and the same parameters;
// order_groups (schedule.h) says which of them run together. A group runs as one operator function that Python makes
// of the plan's graph and the batching rules (tandem/transforms/grouped.py), on operands with one axis more: rows
// that lie side by side already are used in place, others are copied together, and what all members share is passed as
// it is. The results of a group are blocks, and the deferred tensors become rows of them. Gradients: see Note
// [Gradients of rows] in records.h.
//
// Calls that one function of the user's makes again and again run as one, too: see Note [Cells] in cells.h and
// run_cells.cc.
//
// What a call only looks at (a slice, a transpose) is a view of a deferred tensor and no call. Members that make the
// same view of a parameter, as in `x @ weight.mT`, share it: gradients go through the view of the first. In-place
// operators on a deferred tensor that nobody else looks at are deferred as what they compute; others run all that is
// deferred, and then happen. Random numbers are those of eager calls: each member has its own place in the stream.
#pragma once
#include <Python.h>

#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autobatch/cells.h"
#include "autobatch/frontiers.h"
#include "autobatch/group_call.h"
#include "autobatch/records.h"
#include "autobatch/schedule.h"
#include "autobatch/sequences.h"
#include "modes.h"
#include "operators/capturing.h"
#include "operators/op_function.h"
#include "plan/plan.h"

namespace tandem {

// Numbers for byte strings, from 0 on.
class Numbered {
 public:
  Numbered() : slots_(256, -1) {}
  int32_t number(const uint8_t* data, size_t size, uint64_t hash);
  int32_t size() const { return static_cast<int32_t>(keys_.size()); }
  void clear();

 private:
  struct Key {
    uint64_t hash;
    uint32_t begin, size;
  };
  std::vector<Key> keys_;
  std::vector<uint8_t> bytes_;
  std::vector<int32_t> slots_;  // a power of two
};

struct Joined {      // rows of which an operand is made: see Note [Joined rows] in join.cc
  size_t count = 0;  // 0: it is one
  bool new_axis = false;
};

// The parameter that t is a differentiable view of; null where it is none.
inline const Tensor* viewed_parameter(const Tensor* t) {
  if (!t->extra || !t->extra->base || !t->requires_grad) return nullptr;
  const auto* base = reinterpret_cast<const Tensor*>(t->extra->base);
  return base->requires_grad && base->is_leaf() ? base : nullptr;
}

class Batch {
 public:
  Batch() {
    exchange_memory();
    begin_numbers();
  }
  Batch(const Batch&) = delete;
  ~Batch();

  // What becomes of a call with this plan: a view made now, a deferred call, or one that runs now.
  enum class Fate : uint8_t { View, Defer, Now };
  Fate fate(const OpFunction* op, const Plan& plan, const Argument* arguments, int count) const;
  TensorList defer(OpFunction* op, const Ref<Plan>& plan, PlanRun& run, Argument* arguments, int count);
  // Defers a call that comes where one like it is expected (sequences.h); false for all others.
  bool predict(OpFunction* op, Argument* arguments, int count, TensorList& outputs, bool* returns_tuple);
  // Defers tensors joined along the first axis (join.cc); false for all other calls.
  bool join(OpFunction* op, Argument* arguments, int count, TensorList& outputs, bool* returns_tuple);
  // A view of a deferred tensor, with its history.
  TensorRef view(Tensor* of, const View& geometry, bool differentiable);
  bool takes_views(const Tensor* of) const;
  bool can_write(const Tensor* t);  // whether a write of t can be deferred

  void run(const Storage* wanted);  // what this deferred tensor needs
  void run_all();                   // what somebody holds
  void run_waiting();               // everything
  void drop();                      // deferred tensors never get memory

  // Calls functions, by how many others a vertex takes from, on each vertex and gives results as blocks, one row a
  // vertex. Inputs have a row a vertex. See vertices.cc.
  TensorList run_vertices(const Structure& structure, const VertexFunctions& functions, TensorList inputs,
                          size_t states);

  int32_t example = -1;  // of the calls that are deferred now; -1 where examples are not numbered
  const char* unit = "example";
  bool defers_vertices = false;
  int64_t groups = 0;      // how many have run, and
  int64_t calls_run = 0;   // of how many calls
  std::thread::id thread;  // where it is active

 private:
  struct Operand {
    TensorRef leaf;         // has memory; or else a deferred tensor:
    Ref<Storage> storage;   // whose memory it is,
    char* data = nullptr;   // at this offset,
    int32_t geometry = -1;  // with this shape and these strides
    Edge edge;              // where its gradient goes, if it is wanted
    bool detached = false;  // the deferred tensor has gradients, this view of it has not
  };
  struct Call {      // many: small, with what differs in length kept apart
    OpFunction* op;  // new reference; null of a cell
    Ref<Plan> plan;
    int32_t first_operand = 0, first_argument = 0, first_deferred = 0;
    uint32_t num_operands = 0, num_arguments = 0;
    int32_t kind = -1;  // calls of one kind may run together
    int32_t example = -1;
    int32_t instruction = 0;  // where in `code` it was made, which is only compared
    const void* code = nullptr;
    Sequence* sequence = nullptr;  // many calls that became this one; so many results are wanted, which are numbered by
    uint32_t num_results = 0;      // those of all of them
    Source source;
    CallMode mode;
    DType float_type = DType::Float32;  // the default where it was made
    bool inference = false, functional = false, done = false;
    bool grad = false;       // gradients are wanted where it was made
    bool random = false;     // it takes random numbers
    bool of_vertex = false;  // of a vertex program
    bool joins = false;      // its operands are rows of the result: see Note [Joined rows] in join.cc
  };
  template <typename T>
  struct Some {
    T* first;
    size_t count;
    T* begin() const { return first; }
    T* end() const { return first + count; }
    size_t size() const { return count; }
    T& operator[](size_t i) const { return first[i]; }
  };
  Some<Operand> operands(const Call& call) { return {operands_.data() + call.first_operand, call.num_operands}; }
  Some<const Operand> operands(const Call& call) const {
    return {operands_.data() + call.first_operand, call.num_operands};
  }
  Some<Argument> arguments(const Call& call) { return {arguments_.data() + call.first_argument, call.num_arguments}; }
  struct DeferredTensor {
    Ref<Storage> storage;
    int32_t call = -1, output = 0;
    int64_t uses = 0;   // by operands of deferred calls
    Ref<RowNode> rows;  // a list
  };

  Operand operand_of(Tensor* t, bool wants_grad, int32_t geometry = -1);
  void use(Operand& operand);
  Call& begin_call(OpFunction* op, const Ref<Plan>& plan);
  Call& begin_call(const SequenceCall& from, int32_t of_example);
  Call& add_call(OpFunction* op, const Ref<Plan>& plan, const Argument* arguments, int count);
  void release(Operand& operand);
  static View deferred_view(const PlanValue& value, PlanRun& run);
  TensorRef defer_result(int32_t call, int32_t output, const SavedView& view, size_t bytes, int device,
                         bool wants_grad);
  bool holds(const Storage* storage) const { return storage->batch() == this; }
  void finish(Call& call);  // lets go of what it holds
  void forget_if_done();
  void exchange_memory();  // with that of a batch before

  void run_needed(std::vector<uint8_t>& needed);

  // run.cc
  void run_calls(std::vector<int32_t> calls);
  void describe(const Call& call, Signature& key);  // what calls that run together have in common
  void run_group(const std::vector<int32_t>& members);
  bool split(const std::vector<int32_t>& members, const std::vector<bool>& shared);
  void run_members(const std::vector<int32_t>& members);  // one after the other
  TensorList call_function(OpFunction* op, const std::vector<int32_t>& members, const std::vector<bool>& shared);
  using Rows = std::vector<const Operand*>;  // one operand of each member of a group, or all of calls that join
  static Joined joined_of(const Call& call) {
    if (!call.joins) return {};
    return {call.num_operands, call.op->joins == Joins::Stack};
  }
  static View joined_view(const View& row, const Joined& joined);
  std::vector<View> result_views(const Call& call);
  void run_joined(const std::vector<int32_t>& members);
  Rows rows_of(const std::vector<int32_t>& members, size_t position) const;
  TensorRef gather(const std::vector<int32_t>& members, size_t position, bool stacked);
  TensorRef gather(const Rows& rows, bool stacked, const Joined& joined = {}, bool copied = false);
  static bool side_by_side(const Rows& rows, int64_t step);
  bool is_shared(const Rows& rows, bool of_vertex) const;
  struct Part {
    const void* data;
    const void* owner;  // what takes its gradient
    int32_t member;
    bool same(const Part& other) const { return data == other.data && owner == other.owner; }
  };
  std::vector<Part> parts_of(const Rows& rows) const;  // where members share a large operand in parts
  static Storage* memory_of(const Operand& operand);
  bool is_held(const Tensor* view) const;  // by others than operands
  bool same_operand(const Operand& a, const Operand& b) const;
  static bool is_one_operand(const Operand& a, const Operand& b) {  // before anything has run
    return a.leaf.get() == b.leaf.get() && a.storage.get() == b.storage.get() && a.data == b.data &&
           a.geometry == b.geometry && a.edge.node.get() == b.edge.node.get();
  }
  View view_of(const Operand& operand) const;
  static const char* data_of(const Operand& operand);
  using DeferredRows = std::vector<int32_t>;  // the deferred tensors that a block has the results of
  void fulfil(const std::vector<DeferredRows>& rows, const TensorList& blocks, bool stacked,
              CellFunction* cell = nullptr);
  void hand_out(const std::vector<int32_t>& members, TensorList blocks, bool stacked);

  // run_cells.cc
  struct Unit {  // a cell, or a call alone
    SmallVector<int32_t, 2> calls;
    // (call, which operand): what a cell takes from outside; operand -1: all of a call that joins
    std::vector<std::pair<int32_t, int32_t>> externals;
    int32_t kind = -1;  // of calls alone: theirs; of cells: theirs after those
  };
  struct CellWords {  // how the calls of a cell take from one another and from outside
    std::vector<uint32_t> words;
    std::vector<size_t> ends;  // of each call
  };
  struct CellKind {
    std::vector<uint32_t> words;
    int32_t first = -1;  // a unit of this kind
    int64_t count = 0;
    std::shared_ptr<CellFunction> function;
  };
  CellCall traced(const Call& call, const std::vector<int32_t>& place);
  std::vector<Unit> units_of(const std::vector<int32_t>& calls, std::vector<int32_t>& unit_of);
  void describe(Unit& unit, const std::vector<int32_t>& position, CellWords& to) const;
  bool cut(std::vector<Unit>& units, std::vector<int32_t>& position);
  void number(std::vector<Unit>& units, std::vector<int32_t>& position);
  std::shared_ptr<CellFunction> function_of(const Unit& unit, const CellKind& kind);
  uint64_t geometry_hash(const Unit& unit) const;
  void mark_outputs(const Unit& unit, CellFunction& function) const;
  struct CellGroup {  // cells that run as one call
    size_t members = 0;
    bool records = false;
    std::vector<Rows> rows;
    std::vector<Joined> joined;  // of each of the rows
    std::vector<Argument> numbers, ints;
    std::shared_ptr<CellFunction::Program> program;  // that ran
  };
  // False where calls have to run by themselves, or in these parts.
  bool call_cells(CellFunction& function, const Call& call, CellGroup& group, TensorList& blocks,
                  std::vector<std::vector<int32_t>>& parts);
  void run_cells(const std::vector<const Unit*>& units, CellFunction& function);
  void run_by_call(const std::vector<const Unit*>& units);
  static bool is_inside(uint32_t word);  // of CellWords
  std::vector<CellKind> cell_kinds_;

  // sequences.cc
  bool learn(const Unit& unit, const std::shared_ptr<CellFunction>& function);
  void learn_alone(int32_t number);
  bool describe(const Call& call, SequenceCall& to);
  bool find_inside(int32_t first, const std::vector<int32_t>& cell_of, std::vector<SequenceCall>& calls) const;
  void describe_outside(const Unit& unit, Sequence& to) const;

  // following.cc
  struct Followed {  // calls that follow a sequence: what it does not know of them
    std::vector<SequenceCall*> calls;
    std::vector<int32_t> first_deferred;  // of each
    std::vector<Operand> outside;         // operands from outside of the sequence
    std::vector<RowNode*> rows;           // records of operands from inside, which deferred tensors hold; null: none
    Source source;                        // of the first call
    int32_t example = -1;
    struct Place {  // among these operands
      size_t inside = 0, outside = 0;
    };
    void clear() { calls.clear(), first_deferred.clear(), outside.clear(), rows.clear(); }
  };
  static bool is_same(const Operand& known, const Tensor* t, bool records);
  bool is_next(const SequenceCall& expected, const OpFunction* op, const Argument* arguments, int count,
               bool first) const;
  void renumber(SequenceCall& expected);
  bool follow(SequenceNode& node, Argument* arguments, int count, TensorList& outputs, bool* returns_tuple);
  void end_sequence();
  void forget_followed();
  Operand inside_operand(size_t call, size_t position, size_t inside);
  void make_call(size_t i, Followed::Place& place);
  void make_calls();
  bool collapse(Sequence& sequence);
  void make_others(const Sequence& sequence);
  int32_t kind_of(Sequence& sequence, const Call& cell);
  Followed followed_;
  SequenceNode* sequence_ = nullptr;  // where calls have come to
  Sequence* sequence_end_ = nullptr;  // its calls have come

  // run_sequences.cc
  void run_sequences(const std::vector<int32_t>& given);
  void run_expanded(const std::vector<int32_t>& members);
  bool is_watched(const Call& cell) const;
  void mark_outputs(const std::vector<int32_t>& members, CellFunction& function) const;
  Unit expanded(int32_t number);
  uint64_t serial_ = 0;  // of the numbers of kinds and geometries
  void begin_numbers();

  std::vector<Call> calls_;
  std::vector<Operand> operands_;    // of all calls; those that are tensors
  std::vector<Argument> arguments_;  // of all calls; static ones are new references
  std::vector<DeferredTensor> deferred_;
  std::unordered_map<const Tensor*, int32_t> view_uses_;  // by operands, of views of parameters
  Numbered kinds_;
  Numbered geometries_;
  std::vector<SavedView> geometry_;  // by number
  int32_t number_of(const View& view);
  int64_t waiting_ = 0;  // calls that have not run
};

}  // namespace tandem
