// A plan: what one signature of an operator compiled to. Built by Python (tandem/program/write.py), run by C++.
//
// Sizes are computed at each call by a tiny integer program over *slots*; guards say for which sizes the plan is valid;
// values are pieces of memory (inputs, fresh memory, views); instructions call generated kernels and library routines
// in order.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "device/cuda/driver.h"
#include "device/cuda/side_work.h"
#include "interpreter.h"
#include "library/registry.h"
#include "memory/allocator.h"
#include "tensor/storage.h"
#include "tensor/view.h"

namespace tandem {

struct Constants;

enum class IntCode : uint8_t { Add, Mul, FloorDiv, Mod, Min, Max, Sub };
struct IntOp {
  IntCode code;
  int32_t a, b, out;
};

enum class Relation : uint8_t { Equal, NotEqual, Less, GreaterEqual };  // of a slot with 0
struct Guard {
  Relation relation;
  int32_t slot;
};

enum class ValueKind : uint8_t { Input, Fresh, View };
struct PlanValue {
  ValueKind kind;
  DType dtype;
  int32_t source;                // Input: position among the inputs. View: the value it looks into.
  int32_t offset;                // View: slot of the offset in elements
  std::vector<int32_t> shape;    // slots
  std::vector<int32_t> strides;  // slots; in elements
  bool on_host = false;  // of a plan for a device: a number, or a single element in host memory; kernels get its value
  int8_t device = -1;    // of a plan over several devices: where it is; -1: where the plan runs
  bool pinned = false;   // host memory that devices copy to and from by themselves
};

using KernelFunction = void (*)(void** pointers, const int64_t* ints, int64_t begin, int64_t end);

struct Region;        // plan/region.h
struct MemoryLayout;  // plan/layout.h
namespace profile {
enum class Kind : uint8_t;  // profile/profile.h
}

// A kernel that a routine calls for blocks of its result (Note [Epilogues] in library/epilogue.h). Its operands are the
// instruction's values from `first` on, with the result put in at `result`.
struct EpilogueCode {
  KernelFunction kernel = nullptr;
  int32_t first = 0, result = 0;
  int32_t value = 0;   // the result, and
  bool keeps = false;  // whether it has memory: it is then among the instruction's values
  std::vector<int32_t> ints, alike;
  double cost = 0;
};

// A kernel that a collective calls for blocks of one of its results (library/update.h). Its operands are `count` of the
// instruction's values, from `first` on, with the result put in at `result`.
struct UpdateCode {
  KernelFunction kernel = nullptr;
  int32_t first = 0, count = 0, piece = 0, result = 0, extent = 0, block = 0;
  std::vector<int32_t> ints, dense;
  bool keeps = true;
  int64_t identity = 0;
  double cost = 0;
};

// An operand of a collective that is the product of two of the instruction's values, `first` and the next one
// (library/factors.h).
struct FactorsCode {
  int32_t first = 0, piece = 0;
};

struct Instruction {
  // Part, Transfer: of plans over several devices (parts.h)
  enum class Kind : uint8_t { Kernel, Library, Free, Region, Part, Transfer } kind;
  KernelFunction kernel = nullptr;
  library::Function routine = nullptr;
  std::vector<int32_t> values;  // Kernel: operands. Free: values to give back. Others: inputs, outputs
  int32_t num_inputs = 0;       // Library, Region, Part
  std::vector<int32_t> ints;    // slots
  std::vector<double> floats;
  int32_t extent = -1;                     // Kernel: slot of the parallel extent
  double cost = 0;                         // Kernel: nanoseconds per item of the extent
  std::string label;                       // what runs, for readers
  std::shared_ptr<Region> region;          // Region, Part: plans that it runs
  std::shared_ptr<EpilogueCode> epilogue;  // Library: what follows it
  std::vector<UpdateCode> updates;         // Library: what follows a collective
  std::vector<FactorsCode> factors;        // Library: of operands of a collective; before what follows it
  std::shared_ptr<const Origin> origin;    // programs of many calls: which one this comes from, for errors

  // Kernels of a device: the grid has `extent` blocks. Several launches of one kernel may be one instruction: `parts`
  // has the extent of each, and `values` and `ints` have theirs one after the other.
  std::vector<int32_t> parts;
  void* function = nullptr;
  uint16_t threads[2] = {0, 0};
  uint32_t shared = 0;          // bytes of shared memory that a launch asks for
  bool checks = false;          // Library: only checks its input, which may be done early (Note [Early checks])
  bool waits = false;           // Library: for other ranks, which have to run it as well
  bool prepares = false;        // Library: can be made ready for new sizes; see Note [Preparing] in library/registry.h
  std::vector<int32_t> writes;  // Kernel, of programs: those of its values that it writes
  // Kernels of a device: what follows their operands and integers.
  enum Extra : uint8_t {
    kReports = 1,  // complains about bad indices: the device's report and the launch's number (device/cuda/launches.h)
    kGuarded = 2,  // writes inputs, unless a check has failed: the device's flag
  };
  uint8_t extra = 0;

  profile::Kind profiled() const;  // what a profile calls it
  int32_t own_values() const;      // Library: inputs and outputs, before what belongs to factors and updates
};

// With how many calls captured each of a program's inputs (leaves, then numbers, then integers) was known.
struct KnownInputs {
  size_t leaves = 0, numbers = 0;
  std::vector<int32_t> calls;
};

// A launch that takes values from the host.
struct HostNode {
  cuda::GraphNode node;
  const Instruction* instruction;
  std::vector<uint64_t> words;
};

class Replay;  // replay/replay.h

// How a call gives an integer slot its value.
struct Binding {
  enum class From : uint8_t { Size, Stride, Int } from;
  int32_t input;
  int32_t axis;
  int32_t slot;
};

struct SavedItem {  // something backward needs
  enum class From : uint8_t { Input, Output, Temporary } from;
  int32_t index;    // input position, output index, or value
  int32_t copy_of;  // Temporary that copies this input (an operator that overwrites what it saves), or -1
};

struct Plan {
  std::vector<int64_t> initial;  // slots with constants filled in
  std::vector<Binding> bindings;
  std::vector<IntOp> int_ops;
  std::vector<Guard> guards;
  std::vector<PlanValue> values;
  std::vector<Instruction> instructions;

  struct Output {
    int32_t value;
    int32_t same_as_input;  // >= 0: the result is that very tensor
    int32_t view_of_input;  // >= 0: the result is a view of that input
    bool differentiable;
  };
  std::vector<Output> outputs;
  bool returns_tuple = false;
  int32_t rng_advance = -1;  // slot: how far the generator moves

  // Backward; empty when nothing requires a gradient.
  std::vector<int32_t> grad_inputs;  // input positions that get gradients, in the order backward returns them
  std::vector<SavedItem> saved;
  std::vector<int32_t> saved_ints;     // slots
  std::vector<int32_t> saved_numbers;  // input positions of Python numbers
  Object* backward = nullptr;          // OpFunction (owned): gradients from saved values
  Object* backward_twice = nullptr;    // OpFunction (owned): the same, differentiable again
  Object* backward_lazily = nullptr;   // OpFunction (owned), or null: summands in place of some gradients, and
  enum class Summand : uint8_t { Matmul, Rows };
  std::vector<std::vector<Summand>> summands;  // by gradient, two tensors each: Note [Lazy weight gradients] in
                                               // autograd/lazy_sum.h
  // What runs backward of this and of a record before it in one, or None: see Note [Joined records] in
  // autograd/record.h.
  struct Joined {
    Object* other;    // backward function of the other record; None: the sum of two gradients
    uint32_t output;  // of the other record
    Object* both;     // both owned
  };
  std::vector<Joined> joined;

  Object* keep = nullptr;  // what Python knows of the plan: its graph, for capture (owned)
  // Note [Unwritten plans]
  // A captured call needs the geometry of its results and what backward saves, but its plan never runs where a program
  // takes its place. So the instructions of a plan that was made for a capture are not written down until it first runs
  // by itself: then this is called with a builder of the plan (tandem/tracing/operator_plan.py), which adds them.
  // Values and integers that were there keep their numbers. Who holds a PlanRun of it begins it again.
  Object* unwritten = nullptr;  // (owned), or null
  Object* kernels =
      nullptr;  // kernels of the Kernel instructions, compiled when the plan first runs (owned list), or null
  std::string name;
  int device = 0;             // where it runs and its results lie: 0 the CPU, k cuda:(k - 1)
  bool over_devices = false;  // Note [Parts] in parts.h: `device` is then where results lie that say nothing else
  int32_t num_checks = 0;     // instructions that only check
  int32_t first_write = -1;   // programs: the first instruction that writes an input; -1 if none does

  // Programs on a device, which may be replayed (see Note [Replay]).
  bool is_program = false;
  size_t num_inputs = 0;
  std::vector<int32_t> written;                          // inputs that it writes
  std::vector<bool> host_inputs;                         // inputs that lie on the host
  mutable std::vector<std::shared_ptr<Replay>> replays;  // by rank_in_process
  Replay* replay() const;                                // this thread's; null if there is none yet

  bool waits = false;  // whether a routine waits for others, with the GIL free

  mutable std::shared_ptr<Constants> constants;  // Note [Constant weights] (GIL)

  int32_t num_prepared = 0;                 // instructions that can be made ready for new sizes
  mutable std::vector<uint64_t> ready_for;  // hashes of sizes for which that was done (GIL)

  bool lays_out = false;  // a program on the CPU: its values lie in one block; see Note [Memory layout]
  mutable std::vector<std::shared_ptr<const MemoryLayout>> layouts;  // for different sizes, latest last (GIL)

  int device_of(int32_t value) const {  // where a value lies
    while (values[value].kind == ValueKind::View) value = values[value].source;
    return values[value].device < 0 ? device : values[value].device;
  }

  Plan() = default;
  ~Plan();
  void retain() noexcept { ++references_; }  // GIL
  void release() noexcept {
    if (--references_ == 0) delete this;
  }

 private:
  int64_t references_ = 1;
};

struct InputView {             // what the dispatcher hands over per input
  const View* view = nullptr;  // tensor inputs
  char* cell = nullptr;        // address of a Python number's value
  int64_t integer = 0;         // dynamic ints
};

// Of a plan that runs many times: which inputs of its routines stay the same, and what they keep of them.
struct LoopState {
  LoopState(const Plan& plan, size_t first, size_t last);  // inputs [first, last) stay the same
  std::vector<uint32_t> same;                              // per instruction
  std::vector<std::unique_ptr<library::Kept>> kept;
};

// Note [Constant weights]
// The weights of a frozen model (td.export.freeze) are arguments like any other, which stay the same from call to call.
// A plan that was made for it keeps what routines made of them, as long as the arguments are the very same memory with
// the same contents; who writes to a weight makes its version rise, and all is made again.
struct Constants {
  struct Weight {
    Ref<Storage> storage;  // so that nothing else comes to lie there
    const char* data;
    uint32_t version;
  };
  Constants(const Plan& plan, size_t first, size_t last) : state(plan, first, last) {}
  std::vector<Weight> weights;
  LoopState state;
};

class Transfers;  // plan/parts.h

class PlanRun {
 public:
  PlanRun(const Plan& plan, const InputView* inputs);
  ~PlanRun();
  bool guards_hold();                            // computes the integers
  bool overflowed() const { return overflow_; }  // one of them does not fit 64 bits, and so guards do not hold
  void execute();                                // throws Error; may release the GIL
  void execute_without_gil();
  void check_input(int32_t position);  // the steps that do nothing but check this input; throws Error
  bool wrote_inputs() const;           // after a failure: whether inputs may have been written before it
  View view(int32_t value) const;
  Storage* share_storage(int32_t value);  // a new reference to a Fresh value's memory
  void forget_storage(int32_t value);     // gives up this run's own reference
  int64_t slot(int32_t s) const { return ints_[s]; }
  char* data(int32_t value) { return address(value); }
  int device() const { return plan_.device; }
  bool on_host(int32_t value) const { return plan_.values[value].on_host; }

  // Who captured the calls of this program, and when.
  void set_known_inputs(const KnownInputs* known, const void* owner) {
    known_inputs_ = known;
    owner_ = owner;
  }

  // For plans inside regions, which run many times: once more, now that the addresses of inputs have changed. Memory
  // that the plan took stays. The GIL is not held on the CPU.
  void run_again();
  void set_loop(LoopState* loop) { loop_ = loop; }

 private:
  char* address(int32_t value);
  void run_ints();
  void run_instructions();
  void run_instructions(const Instruction*& current);
  // parts.cc
  void run_parts();
  void run_part(const Instruction& instruction, Transfers& transfers);
  void take_result(int32_t value, const Plan& part, PlanRun& run, int32_t output);
  void begin_transfer(const Instruction& instruction, Transfers& transfers);
  bool is_number(int32_t value) const;  // of a plan over several devices: an input without sizes
  // plan_cuda.cc
  void run_on_device();
  void run_on_device(const Instruction& instruction, std::vector<HostNode>* host_nodes);  // the latter: recording;
                                                                                          // takes launches with numbers
  bool update_words(HostNode& node);                                                      // whether its numbers changed
  void fill_words(const Instruction& instruction, uint64_t* words);
  int64_t blocks(const Instruction& instruction) const;
  void forget_addresses();
  void join_side_work(const Instruction& instruction);
  void end_side_work();
  void give_back(int32_t value);
  size_t add_extra_words(const Instruction& instruction, uint64_t number, uint64_t* words, size_t count);
  char* recorded_address(int32_t value);
  friend class Replay;
  double estimated_cost() const;
  bool meets_new_sizes();
  void prepare_routines();
  View geometry(int32_t value) const;  // a view without memory
  int64_t bytes_of(int32_t value) const;
  // layout.cc
  std::shared_ptr<const MemoryLayout> find_layout() const;
  std::shared_ptr<const MemoryLayout> make_layout() const;
  size_t scratch_of(const Instruction& instruction) const;
  std::vector<View> geometries(const Instruction& instruction) const;  // of what a routine gets
  void take_arena(std::shared_ptr<const MemoryLayout> layout);
  void run_routine(const Instruction& instruction, const library::Call& call);
  void run_with_epilogue(const Instruction& instruction);
  void run_joined(const Instruction& instruction);
  void keep_for(const Instruction& instruction, library::Call& call);

  const Plan& plan_;
  bool overflow_ = false;
  const Instruction* failed_ = nullptr;
  bool part_wrote_ = false;  // whether the part that failed had written inputs
  const InputView* inputs_;
  const size_t num_values_;  // the plan may get more: Note [Unwritten plans]
  const KnownInputs* known_inputs_ = nullptr;
  const void* owner_ = nullptr;
  LoopState* loop_ = nullptr;
  cuda::SideWorks side_;  // what the current stream has not waited for
  static constexpr int kInlineSlots = 64, kInlineValues = 24;
  int64_t inline_ints_[kInlineSlots];
  char* inline_data_[kInlineValues];
  Storage* inline_storage_[kInlineValues];
  std::unique_ptr<int64_t[]> heap_ints_;
  std::unique_ptr<char*[]> heap_data_;
  std::unique_ptr<Storage*[]> heap_storage_;
  std::shared_ptr<const MemoryLayout> layout_;  // null where values are allocated one by one
  Arena arena_;
  int64_t* ints_;
  char** data_;
  Storage** storage_;
};

// Runs a program of a device as a recorded graph where possible (replay/replay.cc).
void run_replayed(const Plan& plan, PlanRun& run);

// Compiles (or loads) the plan's kernels if that was not done yet. Throws PythonError.
void prepare_plan(Plan& plan);

Ref<Plan> plan_from_python(Object* object);  // bindings/plan.cc; null with a Python error set

}  // namespace tandem
