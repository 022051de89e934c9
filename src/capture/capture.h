// Capture: while a compiled function runs, operator calls are captured instead of run. Results are deferred: tensors
// with sizes but no memory yet. When a value is needed, or at the end, everything captured so far becomes one program.
//
// Note [Capture]
// The Python code of a compiled function runs on every call; only the numeric work is put off. So there is nothing to
// go stale: no attribute, closure, mode or branch is remembered from an earlier call. What is looked up at the end is
// the sequence of calls itself (plans and how they are wired); a sequence seen before finds its program. Reading a
// value (`if loss > 3:`, item()) ends a segment; the rest of the function makes another one.
//
// Every operand is a *leaf* (a tensor with memory), a *result* of an earlier call, a number or an int. Tensors are
// identified by storage, geometry and version. A write in place makes the written tensor the result of the writing
// call; a tensor that looks at written memory in another way ends the segment, and is then simply read from memory.
//
// Note [Capture of bodies]
// The function that describes an iteration of td.scan, or a branch of td.cond, is captured too, once a call of td.scan:
// on deferred tensors for what an iteration gets. Nothing runs; Python (tandem/control/body.py) asks what was captured.
// Tensors from outside are leaves, whether they have memory or are deferred tensors of the capture around this one.
// Values cannot be read.
//
// Note [Early checks]
// A step that only checks its operand (an index against a bound) is done at once where the operand lies in memory
// already, as batches of data do: the error then comes from the very line, where the user's code can catch it. The
// program checks again, which costs little.
// Other errors are found when the program runs. If it has not yet written anything that existed before, the calls run
// once more, operator by operator, and fail where eager code fails, with all that came before done; see run_fallback.
//
// Note [Rebinding]
// By then the function's Python code has run to its end, and has put results into places that outlive it: attributes of
// modules, gradients. Those that never get a value, because the program failed or was interrupted while it was
// compiled, give way to what was there before, as if the code after the failing line had not run.
//
// Note [Elsewhere]
// A function compiled for a cluster has its programs run by Python (tandem/distributed/cluster/compiled.py): what was
// captured is described once for each sequence of calls, and what comes of that is called with the tensors and numbers
// of each run. It gives the results, and what written tensors hold then, which is copied here. Calls know the task that
// they were made for (Call::scope), which is part of the key.
//
// Note [Ahead]
// Calls are captured in a fraction of the time that a device needs for them, but the device would idle meanwhile. So a
// device begins while they are captured: as long as the calls are those of the last time (the key has the same bytes,
// the operands known so far lie where they lay, with the same sizes), pieces of the recorded program (Note [Pieces] in
// replay/pieces.h) are launched as soon as what they read is known. They write memory of the graph only. When the
// segment ends as it did the last time, only the rest is launched; when it turns out to be another one, what was begun
// is forgotten, and the program runs as if nothing had been. After several guesses in vain no more are made.
#pragma once
#include <Python.h>

#include <climits>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "autograd/record.h"
#include "capture/call_record.h"
#include "capture/compiled_call.h"
#include "capture/prediction.h"
#include "capture/storage_table.h"
#include "check.h"
#include "operators/capturing.h"
#include "operators/op_function.h"
#include "plan/plan.h"
#include "source.h"
#include "tensor/tensor.h"

namespace tandem {

class Capture;

enum class OperandKind : uint8_t { None, Leaf, Result, Number, Int };  // where an operand of a call comes from

// Programs of one compiled function, by what was captured.
class ProgramCache {
 public:
  // Whether the calls of a segment are written down, to be predicted: less and less often where that has been in vain.
  struct Learning {
    int wasted = 0;     // predictions since the last that came true
    int64_t pause = 0;  // calls that are left out
    bool begin();
  };
  struct Entry {
    std::vector<uint8_t> key;
    uint64_t hash = 0, used = 0;  // used: when it was found last, in finds of its cache
    struct Program {
      Ref<Plan> plan;
      int64_t number = -1;  // in the report
      int64_t runs = 0;
    };
    std::vector<Ref<Plan>> plans;                          // of the calls: keeps the addresses in the key their own
    std::vector<Program> programs;                         // variants for different sizes, most recently used first
    std::vector<std::shared_ptr<Prediction>> predictions;  // for different sizes, most recently used first
    bool has_missed = false;  // the last prediction: the next calls are written down instead
    int64_t runs = 0;
    int missed = 0;              // how often work was begun for it in vain, in a row; see Note [Ahead]
    bool broken = false;         // no program could be made: calls take the fallback
    PyObject* remote = nullptr;  // what runs these calls elsewhere (owned)
    Entry() = default;
    Entry(const Entry&) = delete;
    ~Entry() { Py_XDECREF(remote); }
  };
  ProgramCache();
  ProgramCache(const ProgramCache&) = delete;
  std::shared_ptr<Entry> find_or_insert(const std::vector<uint8_t>& key);
  void clear();
  int64_t num_reported() const { return report ? PyList_GET_SIZE(report) : 0; }
  void tell(int64_t number, const char* what);  // the report, of a program that is no longer kept: "drop", "forget"
  std::vector<std::shared_ptr<Entry>> entries;  // shared: a thread may clear what another one runs
  PyObject* report = nullptr;                   // Python list that programs describe themselves in (owned)
  PyObject* watch = nullptr;                    // called before a program runs, with its inputs; see td.bisect (owned)
  PyObject* remote = nullptr;                   // what runs programs elsewhere; see Note [Elsewhere] (owned)
  std::vector<std::shared_ptr<Entry>> latest;   // what the segments of the last call were
  std::vector<Learning> learning;               // of each of them
  std::unique_ptr<Capture> spare;               // one that has its memory already
  int64_t num_predicted = 0;                    // segments that were as predicted to their end
  ~ProgramCache();

 private:
  void drop_oldest();
  std::unordered_multimap<uint64_t, size_t> index_;
  uint64_t finds_ = 0;
};

class Capture {
 public:
  explicit Capture(ProgramCache* programs);
  explicit Capture(std::string region);
  Capture(const Capture&) = delete;
  ~Capture();

  // Whether t can be an operand, or be written in place, in this segment. If not: flush first.
  bool can_read(const Tensor* t) const;
  bool can_write(const Tensor* t) const;
  // Note [Captured view writes]: whether a write through a view is to give its deferred base anew.
  bool replaces(const Tensor* view, const Tensor* base) const;
  void note_replacement(const Storage* storage) {
    ++storages_[storage].replacements;
    replaced_.push_back(storage);
  }
  bool has_replaced() const { return !replaced_.empty(); }
  bool knows(const Tensor* t) const { return prediction_ ? slot_of(t) >= 0 : find(t) != nullptr; }
  void remember_as(const Tensor* t, const Tensor* other);
  // Note [Predicted calls]. The next call, if it is the one that was predicted; null: it is to be captured as usual.
  const PredictedCall* expect(OpFunction* op, Argument* arguments, int count) {
    return prediction_ || is_undecided_ ? expected(op, arguments, count) : nullptr;
  }
  bool predicts() const { return prediction_ != nullptr; }
  bool expects(const PyObject* op) const {  // next
    const size_t position = sources_.size();
    return prediction_ && position < prediction_->num_calls() &&
           reinterpret_cast<const PyObject*>(prediction_->calls[position].op) == op;
  }
  void begin_predicted(const PredictedCall& call, const Argument* arguments, int count);
  const Prediction& prediction() const { return *prediction_; }
  SlotState& slot(int32_t number) { return slots_[number]; }
  void hold(Storage* storage) { held_.push_back(Ref<Storage>::share(storage)); }
  void note_predicted_write(Storage* storage) {
    if (!storage->pending()) storages_[storage].write = 0;
  }
  // After a call was captured: records it for predictions, if that is wanted.
  void learn(OpFunction* op, const Argument* arguments, PlanRun& run, const TensorList& outputs, int32_t call) {
    if (learning_) [[unlikely]]
      learn_call(op, arguments, run, outputs, call);
  }
  void stop_predicting();  // what was predicted so far is captured; nothing if nothing is predicted
  void check_early(PlanRun& run, const Argument* arguments, int count) const;  // Note [Early checks]
  // Captures a call of a plan whose integers `run` has computed; then, one call each, its outputs as deferred tensors.
  int32_t begin(const Ref<Plan>& plan, Argument* arguments, int count);
  TensorRef output(int32_t call, int32_t index, PlanRun& run, Argument* arguments, bool mutates);
  bool touches(const Storage* storage) const { return storage->pending() || is_written(storage); }
  // Whether memory does not hold yet what a reader of its elements is to find.
  bool is_behind(const Storage* storage) {
    if (touches(storage)) return true;
    if (prediction_ && (storage->borrowed() || !borrowed_slots_.empty())) [[unlikely]]
      stop_predicting();
    return overlaps_written(storage);
  }
  // Before a result takes the place of `before` (may be null) in owner[key], or as the gradient of a tensor if key is
  // null. See Note [Rebinding].
  void note_rebinding(PyObject* owner, PyObject* key, PyObject* before);
  // Why a segment ends; texts for fn.explain() are in compile().
  enum class End : uint8_t { Return, Read, Memory };
  // Runs everything captured so far.
  void flush(End end);
  // Ready for another call of the function.
  void start_over() {
    reset();
    segments = 0;
    captured_before_ = 0;
    whole = false;
    record = nullptr;
  }
  int64_t num_captured() const {  // calls since start_over
    return captured_before_ + static_cast<int64_t>(calls_.size() + sources_.size());
  }
  bool defers(const Storage* storage) const;
  std::thread::id thread;  // where it is active
  int64_t segments = 0;
  bool whole = false;                                    // reading a value is an error instead of the end of a segment
  std::vector<CompiledCall::ModuleRange> spare_modules;  // memory for the next call
  CallRecord* record = nullptr;  // what a call that is to be replayed comes to (call_replay.h), or null
  [[noreturn]] void refuse_read() const;

  // A body. See Note [Capture of bodies].
  const std::string region;  // what it is the body of; empty otherwise
  int region_device = 0;     // where that runs
  TensorRef input(DType dtype, int ndim, const int64_t* shape, bool requires_grad);
  void locate(Tensor* t, int32_t site[3]);  // (1 leaf or 2 result, index, output) of a tensor that the body gives
  PyObject* leaf_tensors() const;           // new references, as all of these
  PyObject* describe_calls() const;         // [(plan, operands, temporaries, code, line, recorded, scope)]
  PyObject* describe_leaves() const;
  PyObject* describe_numbers() const;
  PyObject* describe_ints() const;
  bool default_generator_only() const;  // whether random numbers come from no generator of the user's own
  const std::vector<uint8_t>& key() const { return key_; }
  std::vector<Ref<Plan>> plans() const;
  [[noreturn]] void refuse(const char* what) const;

  // Storage and geometry of a result that is saved for backward but is no output of the call.
  struct Temporary {
    Storage* storage;  // new reference
    View view;
  };
  Temporary temporary(int32_t call, int32_t value, PlanRun& run, Argument* arguments);

 private:
  struct Site {  // where a tensor's elements come from
    enum class Kind : uint8_t { Leaf, Result } kind;
    int32_t index;  // of the leaf or the call
    int32_t output;
  };
  struct Operand {
    using Kind = OperandKind;
    Kind kind;
    int32_t index = 0, output = 0;
  };
  struct Call {
    Call() {}  // not = default, which would have emplace_back() clear all of it first
    Call(Call&&) = default;
    Ref<Plan> plan;
    SmallVector<Operand, 8> operands;
    SmallVector<int32_t, 4> temporaries;  // plan values, numbered after the outputs
    Source source;                        // the user's line, for graphs that are printed; released by forget_calls
    bool recorded;                        // whether gradients were recorded
    int16_t scope;                        // device_scope
  };
  struct Leaf {
    Ref<Storage> storage;
    View view;
    bool requires_grad;
    TensorRef tensor;  // of a body
    int32_t known;     // how many calls had been captured with the first that reads it
    int32_t next;      // the leaf before on the same storage, or -1
  };
  struct DeferredTensor {  // memory that does not exist yet
    Ref<Storage> storage;
    View view;   // how the storage is laid out; data is an offset
    Site value;  // what it holds at the end
  };
  struct Known {  // a tensor we can name
    Known() {}    // as Call()
    Known(Known&&) = default;
    const Storage* storage;
    uint32_t version;
    SavedView view;
    Site site;
  };
  struct Write {  // of memory that was there before
    int32_t leaf;
    Site value;
  };
  struct Rebinding {  // owned
    PyObject *owner, *key, *before;
  };

  const PredictedCall* expected(OpFunction* op, Argument* arguments, int count);
  const PredictedCall* start_predicting(OpFunction* op, Argument* arguments, int count);
  bool matches(const PredictedCall& call, OpFunction* op, const Argument* arguments, int count);
  bool matches(const PredictedArgument& expected, const Tensor* t);
  bool matches_leaf(const PredictedSlot& expected, int32_t slot, const Tensor* t);
  int32_t alias_of(const Tensor* t) const;  // the slot that a tensor stands for, or -1
  int32_t slot_of(const Tensor* t) const;   // the last one, of those that were made so far, or -1
  int32_t num_slots() const { return prediction_->calls[sources_.size()].slots; }
  bool is_predicted_deferred(const Tensor* t) const;  // whole
  void forget_predicted();
  void start_learning();
  void learn_arguments(const Argument* arguments, int count);
  void learn_call(OpFunction* op, const Argument* arguments, PlanRun& run, const TensorList& outputs, int32_t call);
  int32_t learn_slot(const View& view, const Storage* storage);
  void finish_learning(ProgramCache::Entry& entry, const std::vector<size_t>& escaping);
  bool run_predicted();  // the program of what was predicted; false if it is another one
  struct Handed {        // a deferred tensor that is to get memory
    Storage* storage;
    View view;
  };
  bool run_program(ProgramCache::Entry::Program& variant, PlanRun& run, const std::vector<Handed>& escaping);
  void note_segment(const std::shared_ptr<ProgramCache::Entry>& entry);
  void forget_calls();
  void forget_rebindings();
  void undo_rebindings();  // of what is still a deferred tensor
  // Where a call comes from this time. The origin's `call` is -2 - its number among all that were captured: Python
  // knows by that in which modules it was made (tandem/errors/module_calls.py).
  std::shared_ptr<const Origin> today(int32_t call) const;
  Operand resolve(Tensor* t, Signature& key);
  const Site* find(const Tensor* t) const;
  int32_t leaf_of(const Storage* storage, const View& view) const;
  void remember(const Tensor* t, Site site) { remember(t->storage, t->view, site); }
  void remember(Storage* storage, const View& view, Site site) { remember(storage, storage->version(), view, site); }
  void remember(Storage* storage, uint32_t version, const View& view, Site site);
  void note_leaf(Storage* storage, const View& view, bool requires_grad, TensorRef tensor);
  void note_write(Storage* storage, const View& view, Site site);
  bool is_written(const Storage* storage) const {
    const StorageFacts* facts = storages_.find(storage);
    return facts && facts->write >= 0;
  }
  Ref<Plan> compile(const std::vector<Site>& wanted, bool symbolic, End end);  // null if no program can be made
  // fallback.cc. On failure, what the calls before the failing one gave is there for those who hold on to it.
  void run_fallback(const std::vector<size_t>& escaping);
  bool overlaps_written(const Storage* storage) const;
  void call_watch();
  PyObject* leaf_views() const;  // a list of tensors, without history
  PyObject* describe_sites(const std::vector<Site>& wanted) const;
  PyObject* describe_writes() const;
  void run_elsewhere(ProgramCache::Entry& entry, const std::vector<Site>& wanted, const std::vector<size_t>& escaping);
  void fill_record(const Ref<Plan>& program, const std::vector<size_t>& escaping, const std::vector<Write>& writes);
  void reset();
  std::vector<Write> ordered_writes() const;
  std::vector<InputView> inputs_so_far(size_t leaves, size_t numbers);
  KnownInputs known_inputs() const;
  void start_guess();                    // ahead.cc, all of these
  void follow_guess(size_t key_before);  // after a call was captured
  void drop_guess();
  Tensor* defer_result(DType dtype, int ndim, const int64_t* shape, const int64_t* strides, Site site, int device);

  ProgramCache* programs_ = nullptr;
  size_t num_inputs_ = 0;  // of a body: the first deferred tensors and leaves
  std::vector<Call> calls_;
  int64_t captured_before_ = 0;  // calls of earlier segments
  std::vector<Leaf> leaves_;
  std::vector<Argument> numbers_;
  std::vector<int64_t> ints_;
  std::vector<int32_t> numbers_known_, ints_known_;  // as Leaf::known
  std::vector<DeferredTensor> deferred_;
  std::vector<Write> writes_;
  std::vector<int32_t> borrowed_leaves_, borrowed_writes_;  // those whose memory is somebody else's
  std::vector<Known> known_;
  HashChains by_view_;  // of known_: by storage and geometry
  StorageTable storages_;
  std::vector<Rebinding> rebindings_;
  std::vector<uint8_t> key_;

  // See Note [Predicted calls].
  std::shared_ptr<Prediction> prediction_;  // what this segment has been so far, or null
  std::shared_ptr<ProgramCache::Entry> predicted_entry_;
  bool is_undecided_ = false;  // whether no call has been made yet
  std::vector<SlotState> slots_;
  std::vector<Ref<Storage>> held_;
  std::vector<Source> sources_;          // of predicted calls; released by forget_predicted
  std::vector<int32_t> borrowed_slots_;  // leaves
  struct Alias {                         // a view of what was given anew: shown by this slot
    const Storage* storage;
    uint32_t version;
    View view;
    int32_t slot;
  };
  std::vector<Alias> aliases_;
  std::vector<const Storage*> replaced_;  // Note [Captured view writes]: once each time
  std::shared_ptr<Prediction> learning_;
  std::vector<int32_t> leaf_slots_, call_slots_;  // of what is recorded: those of leaves, the first of each call
  std::vector<uint8_t> argument_flags_;           // of the call that is being captured
  size_t deferred_learned_ = 0;
  std::vector<View> leaf_views_;

  // See Note [Ahead].
  std::shared_ptr<ProgramCache::Entry> guess_;  // what this segment seems to become
  Ref<Plan> guessed_;                           // its program
  int32_t next_ahead_ = INT_MAX;                // with how many calls captured there is something to begin
};

bool same_view(const View& a, const View& b);  // the same elements

// Note [Deferred tensors of other threads]
// Parameters and their gradients may be shared by threads, so that one meets what another one has captured and not run
// yet. It runs what it has captured itself, so that nobody waits for it in turn, and waits until the other one's
// program has run; then both go on as eager threads would. A deferred tensor that no thread is at work on never gets
// memory: a compiled function failed, or a loop only described it. That is refused.
void await_deferred(const Storage* storage);

[[noreturn]] void refuse_sharded(const Tensor* t);

// t, or what holds all elements of a sharded tensor: all ranks must ask for it. For readers of single values.
TensorRef gathered(const Tensor* t);

// Makes sure that t's memory holds its value: what every reader of elements calls first.
inline void materialize(const Tensor* t) {
  if (t->storage->sharded()) [[unlikely]]
    refuse_sharded(t);
  if (active_capture && active_capture->record) [[unlikely]]
    active_capture->refuse_read();
  if (active_capture && active_capture->is_behind(t->storage)) [[unlikely]] {
    if (!active_capture->region.empty()) active_capture->refuse("reads the value of a tensor");
    if (active_capture->whole)
      fail(
          ErrorKind::Value,
          "a value is read in the middle of a function compiled with whole=True: the program would have to end here",
          "\n  fix: choose inside the program by td.cond(condition, lambda: a, lambda: b) or td.where(condition, a, b) "
          "instead of `if`, or leave out whole=True");
    active_capture->flush(Capture::End::Read);
  }
  if (t->storage->pending()) [[unlikely]]
    await_deferred(t->storage);
}

}  // namespace tandem
