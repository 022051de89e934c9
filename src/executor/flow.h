// Dataflow graphs: operators connected by values and by order, with branches and loops made of six primitives.
//
// Note [Tags]
// A loop is a *frame*; each round of it is an *iteration*. A node runs once for each iteration of the frame it stands
// in, and a value belongs to one iteration of one frame instance: that is its tag. Enter brings a value into the first
// iteration of a new frame (a constant one into every iteration), NextIteration takes it to the following one, Exit out
// to the iteration that the frame was entered from. Frames nest; which node stands in which frame is known before
// anything runs.
//
// Switch passes its value to one output and a *dead* value to the other. A node with a dead input (of data or of order)
// does not run and gives dead results; so a branch not taken costs a few counters. Merge is the exception: it passes on
// the first live input. Dead values end at NextIteration; an Exit gives a dead value only when its frame is over and
// nothing live came out.
//
// Note [Dead values between tasks]
// A graph may be one task's part of a larger one. What another part takes is sent by a node that runs also when its
// value is dead (`always`), and says so; the node that receives it then gives dead values (`Place::dead`). The key of
// an iteration depends on frames' numbers and on counts alone, so both parts know a value of a loop by it.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "ref.h"

namespace tandem::flow {

class Payload {  // what flows: immutable, shared, freed by whoever lets go last
 public:
  virtual ~Payload() = default;
  virtual bool truth() const = 0;               // of a predicate; throws
  virtual bool waits() const { return false; }  // for truth: the value is still being computed elsewhere
  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  std::atomic<int32_t> references_{1};
};
using Token = Ref<Payload>;

enum class Kind : uint8_t {
  Source,         // a value given to the run
  Compute,        // a task
  Switch,         // (data, predicate) -> (if false, if true)
  Merge,          // any -> (the first live one, which)
  Enter,          // outside -> first iteration (constant: every iteration)
  Exit,           // an iteration -> outside
  NextIteration,  // an iteration -> the next
  LoopCond,       // the loop's predicate
  Done,           // nothing but order: after the frame is over
  Fetch,          // a result of the run
};

class Cancellation;

struct Place {  // which execution of a node this is
  int32_t node;
  uint64_t key;  // of the frame instance and iteration; the same in every run, whatever the order of execution
  Cancellation* cancellation;
  void* state;  // what tasks of the run share
  bool* dead;   // whether an input or what it waits for is; the task sets it where its results are
};

class Task {
 public:
  virtual ~Task() = default;
  // Fills outputs; throws. Several threads may run one task at once.
  virtual void run(Token* inputs, int num_inputs, Token* outputs, int num_outputs, const Place& place) = 0;
  virtual bool blocking() const { return false; }  // may wait for something outside of the run
  // Whether a thread that finds nothing else ready may wait in it, instead of having another thread do so. What becomes
  // ready meanwhile is run by who made it ready.
  virtual bool waits_here() const { return false; }
  std::atomic<int64_t> nanoseconds{0};  // what a run takes, as far as known
};

struct Port {
  int32_t node;
  int32_t output;
};

struct NodeSpec {  // a node as it is described
  Kind kind = Kind::Compute;
  std::vector<Port> inputs;
  std::vector<int32_t> controls;  // nodes that run before; when one is dead, so is this
  std::vector<int32_t> orders;    // nodes that come before, dead or not
  int32_t num_outputs = 0;
  std::shared_ptr<Task> task;  // Compute
  int32_t frame = -1;          // Enter and Done: which frame, a small number; 0 is the outermost
  bool constant = false;       // Enter
  int32_t parallel = 10;       // Enter: iterations that may be under way at once
  bool always = false;         // Compute: runs also when an input is dead, which is null then
};

// A graph ready to run: checked, and with every node's frame and counts worked out. Throws Error for what cannot run.
class Graph {
 public:
  Graph(std::vector<NodeSpec> specs, int32_t num_frames);

  static constexpr int32_t kControl = -1, kOrder = -2;
  struct Edge {
    int32_t node;
    int32_t slot;  // among the inputs of its frame, or kControl, kOrder
    int32_t position;
  };
  struct Node {
    Kind kind;
    bool constant = false;
    bool loop_merge = false;
    bool always = false;
    std::shared_ptr<Task> task;
    int32_t frame = 0;  // the frame whose iterations it runs in
    int32_t local = 0;  // number within that frame
    int32_t target =
        0;  // Enter, Done: the frame entered. Source, Fetch: which one. Exit: number among its frame's exits
    int32_t invariant = -1;  // constant Enter: number among those of its frame
    int32_t num_inputs = 0, num_outputs = 0, num_controls = 0;
    int32_t first_slot = 0;
    int32_t merge_inputs = 0;                  // Merge: inputs that come within the first iteration
    std::vector<std::vector<Edge>> consumers;  // of each output
    std::vector<Edge> after;                   // nodes that wait for this one
  };
  struct Initial {  // what a node still waits for, at the start of an iteration
    int32_t pending;
    int32_t dead_inputs;
    bool dead;
    bool fired;
  };
  struct Frame {
    int32_t parent = -1;
    int32_t child = 0;  // number among the parent's children
    int32_t num_children = 0, num_nodes = 0, num_slots = 0, num_enters = 0, num_invariants = 0;
    int32_t parallel = 1;
    std::vector<int32_t> exits, dones;
    std::vector<Initial> initial;
  };

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Frame>& frames() const { return frames_; }
  int32_t num_sources() const { return num_sources_; }
  int32_t num_fetches() const { return num_fetches_; }

 private:
  std::vector<Node> nodes_;
  std::vector<Frame> frames_;
  int32_t num_sources_ = 0, num_fetches_ = 0;
};

}  // namespace tandem::flow
