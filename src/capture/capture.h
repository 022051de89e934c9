// Capture: while a compiled function runs, operator calls are captured instead of run. Results are promises: tensors
// with sizes but no memory yet. When a value is needed, or at the end, everything noted so far becomes one program.
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
// on promises for what an iteration gets. Nothing runs; Python (tandem/control/body.py) asks what was noted. Tensors
// from outside are leaves, whether they have memory or are promises of the capture around this one. Values cannot be
// read.
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
// noted is described once for each sequence of calls, and what comes of that is called with the tensors and numbers of
// each run. It gives the results, and what written tensors hold then, which is copied here. Calls know the task that
// they were made for (Call::scope), which is part of the key.
//
// Note [Ahead]
// Calls are noted in a fraction of the time that a device needs for them, but the device would idle meanwhile. So a
// device begins while they are noted: as long as the calls are those of the last time (the key has the same bytes, the
// operands known so far lie where they lay, with the same sizes), pieces of the recorded program (Note [Pieces] in
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
  struct Entry {
    std::vector<uint8_t> key;
    uint64_t hash = 0, used = 0;  // used: when it was found last, in finds of its cache
    struct Program {
      Ref<Plan> plan;
      int64_t number = -1;  // in the report
      int64_t runs = 0;
    };
    std::vector<Ref<Plan>> plans;   // of the calls: keeps the addresses in the key their own
    std::vector<Program> programs;  // variants for different sizes, most recently used first
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
  std::unique_ptr<Capture> spare;               // one that has its memory already
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
  // Note [Captured view writes]: whether a write through a view is to give its promised base anew.
  bool replaces(const Tensor* view, const Tensor* base) const;
  void note_replacement(const Storage* storage) { ++storages_[storage].replacements; }
  bool knows(const Tensor* t) const { return find(t); }
  void remember_as(const Tensor* t, const Tensor* other) { remember(t, *find(other)); }
  void check_early(PlanRun& run, const Argument* arguments, int count) const;  // Note [Early checks]
  // Notes a call of a plan whose integers `run` has computed; then its outputs, as promises, one by one.
  int32_t begin(const Ref<Plan>& plan, Argument* arguments, int count);
  TensorRef output(int32_t call, int32_t index, PlanRun& run, Argument* arguments, bool mutates);
  bool touches(const Storage* storage) const { return storage->pending() || is_written(storage); }
  // Whether memory does not hold yet what a reader of its elements is to find.
  bool is_behind(const Storage* storage) const { return touches(storage) || overlaps_written(storage); }
  // Before a result takes the place of `before` (may be null) in owner[key], or as the gradient of a tensor if key is
  // null. See Note [Rebinding].
  void note_rebinding(PyObject* owner, PyObject* key, PyObject* before);
  // Why a segment ends; texts for fn.explain() are in compile().
  enum class End : uint8_t { Return, Read, Memory };
  // Runs everything noted so far.
  void flush(End end);
  // Ready for another call of the function.
  void start_over() {
    reset();
    segments = 0;
    noted_before_ = 0;
    whole = false;
    record = nullptr;
  }
  int64_t noted() const { return noted_before_ + static_cast<int64_t>(calls_.size()); }  // calls since start_over
  bool promises(const Storage* storage) const;
  std::thread::id thread;  // where it is active
  int64_t segments = 0;
  bool whole = false;            // reading a value is an error instead of the end of a segment
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
    int32_t known;     // how many calls had been noted with the first that reads it
    int32_t next;      // the leaf before on the same storage, or -1
  };
  struct Promise {  // memory that does not exist yet
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

  void forget_calls();
  void forget_rebindings();
  void undo_rebindings();  // of what is still a promise
  // Where a call comes from this time. The origin's `call` is -2 - its number among all that were noted: Python knows
  // by that in which modules it was made (tandem/errors/module_calls.py).
  std::shared_ptr<const Origin> today(int32_t call) const;
  Operand resolve(Tensor* t, Signature& key);
  const Site* find(const Tensor* t) const;
  int32_t leaf_of(const Tensor* t) const;
  void remember(const Tensor* t, Site site) { remember(t->storage, t->view, site); }
  void remember(Storage* storage, const View& view, Site site);
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
  Noted when_noted() const;
  void start_guess();                    // ahead.cc, all of these
  void follow_guess(size_t key_before);  // after a call was noted
  void drop_guess();
  Tensor* promise(DType dtype, int ndim, const int64_t* shape, const int64_t* strides, Site site, int device);

  ProgramCache* programs_ = nullptr;
  size_t num_inputs_ = 0;  // of a body: the first promises and leaves
  std::vector<Call> calls_;
  int64_t noted_before_ = 0;  // calls of earlier segments
  std::vector<Leaf> leaves_;
  std::vector<Argument> numbers_;
  std::vector<int64_t> ints_;
  std::vector<int32_t> numbers_known_, ints_known_;  // as Leaf::known
  std::vector<Promise> promises_;
  std::vector<Write> writes_;
  std::vector<int32_t> borrowed_leaves_, borrowed_writes_;  // those whose memory is somebody else's
  std::vector<Known> known_;
  HashChains by_view_;  // of known_: by storage and geometry
  StorageTable storages_;
  std::vector<Rebinding> rebindings_;
  std::vector<uint8_t> key_;

  // See Note [Ahead].
  std::shared_ptr<ProgramCache::Entry> guess_;  // what this segment seems to become
  Ref<Plan> guessed_;                           // its program
  int32_t next_ahead_ = INT_MAX;                // with how many calls noted there is something to begin
};

bool same_view(const View& a, const View& b);  // the same elements

// Note [Promises of other threads]
// Parameters and their gradients may be shared by threads, so that one meets what another one has captured and not run
// yet. It runs what it has noted itself, so that nobody waits for it in turn, and waits until the other one's program
// has run; then both go on as eager threads would. A promise that no thread is at work on never gets memory: a compiled
// function failed, or a loop only described it. That is refused.
void await_promise(const Storage* storage);

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
    await_promise(t->storage);
}

}  // namespace tandem
