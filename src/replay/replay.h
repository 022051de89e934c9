// Programs on a device as CUDA graphs: after a few plain runs, the launches of a program are recorded once and replayed
// with one call.
//
// Note [Replay]
// A recorded graph has addresses in it. Memory that the program takes for itself comes from a pool that belongs to the
// graph. Inputs are used where they lie if they did not move between the runs before (parameters, optimiser state), and
// are copied into memory of the graph if they did (a batch). Numbers, which change from call to call (a learning rate,
// the random offset), are arguments of single launches and are put into the graph anew where they changed. Results are
// copied out, so that they belong to whoever holds them. A program that would take as many copies as it has launches
// runs plainly. Sizes are fixed: each set of sizes that comes again and again gets a recording of its own, and the ones
// used least recently go when there are too many. Recordings of one program share their memory, as no two of them run
// at once.
//
// Collectives of devices belong to a graph on all ranks or on none, and the graphs that are launched together are those
// that were recorded together. So ranks agree before each run of a program that has some (Agreement): a graph is
// launched if all would launch one of the same recording, recorded if all may, and else the program runs plainly.
//
// A graph is recorded in pieces (Note [Pieces] in replay/pieces.h), of which all but the last can be launched before
// the run begins (Note [Ahead] in capture/capture.h).
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "device/cuda/driver.h"
#include "plan/plan.h"
#include "tensor/storage.h"

namespace tandem {

struct Piece;

// How ranks agree on a program with collectives; tandem::collectives sets these.
struct Agreement {
  // The group of all its collectives, as a number that no other group of this process has had; -1: they are of several
  // groups, or between two ranks, so that ranks cannot agree.
  int64_t (*group)(const Plan& plan, const PlanRun& run) = nullptr;
  // What all ranks do, of what each wishes: 0 run plainly, 1 record, 2 + n launch recording n. The least; where they
  // wish to launch different recordings, 1. Lets the GIL go.
  int64_t (*agree)(const Plan& plan, const PlanRun& run, int64_t wish) = nullptr;
  int64_t (*new_recording)(const Plan& plan, const PlanRun& run) = nullptr;  // a number, the same on all ranks
  void (*launched)(const Plan& plan, const PlanRun& run) = nullptr;          // the graph, before memory is allocated
};
extern Agreement agreement;

void forget_graphs_of(int64_t group);  // which ends. GIL

class Replay {
 public:
  explicit Replay(int device) : device_(device) {}
  ~Replay();
  Replay(const Replay&) = delete;

  // Runs the program, by the graph where possible. Called with the GIL.
  void run(const Plan& plan, PlanRun& run);

  // See Note [Ahead]: what `owner` notes seems to become this program again.
  int32_t first_ahead()
      const;  // calls that must be captured for the first piece; INT32_MAX if there is nothing to begin
  size_t leaves() const;
  size_t numbers() const;
  // Launches the pieces that `calls` captured calls allow, of which `inputs` knows what is known so far. Gives with how
  // many calls there is more to do, or -1 if this is not the run that was recorded, after which all is forgotten.
  int32_t go_ahead(const Plan& plan, const void* owner, int32_t calls, const InputView* inputs);
  bool give_up(const void* owner);  // whether anything had been begun
  void forget_graphs_of(int64_t group);

 private:
  struct Input {
    char* address = nullptr;        // where it was in the last run
    bool copied = false;            // it moves: the next graph has a copy of it
    char* recorded = nullptr;       // where the graph has it
    Ref<Storage> place;             // of what is copied for the graph
    std::vector<int64_t> geometry;  // its shape, then its strides
  };
  struct RecordedPiece {
    cuda::Graph graph = nullptr;
    cuda::GraphExec executable = nullptr;
    int32_t after;  // calls that must have been captured
    std::vector<HostNode> host_nodes;
  };
  struct Recording {            // of one set of sizes
    std::vector<int64_t> ints;  // all of the plan's, which say what the sizes are
    int runs = 0, recordings = 0;
    bool replayed = false;  // the last run
    std::vector<Input> inputs;
    std::vector<RecordedPiece> pieces;  // none: not recorded yet
    std::vector<char*> addresses;       // of the plan's values, in the graph
    KnownInputs known;
    std::vector<int64_t> captured_ints;
    uint64_t first_launch = 0, last_launch = 0;  // numbers of its launches
    int64_t group = -1, number = -1;             // of what ranks recorded together
  };
  void run_agreed(const Plan& plan, PlanRun& run, int64_t group);
  Recording& find(const Plan& plan, const PlanRun& run);  // and makes it the first
  bool settle(const Plan& plan, const PlanRun& run, Recording& recording) const;
  static bool pays(const Plan& plan, const PlanRun& run, const Recording& recording);
  bool record(const Plan& plan, PlanRun& run, Recording& recording);
  void record_piece(PlanRun& run, const Piece& piece, cuda::Stream stream, Recording& recording);
  bool fits(const Plan& plan, const PlanRun& run, const Recording& recording) const;
  bool fits(const Plan& plan, const InputView& given, size_t leaf, const Recording& recording) const;
  Recording* find_ahead(const Plan& plan, int32_t calls, const InputView* inputs);
  void launch(PlanRun& run, Recording& recording);
  void launch_piece(PlanRun& run, RecordedPiece& piece, cuda::Stream stream);
  void follow(cuda::Stream stream);
  void forget(Recording& recording);
  void drop(bool recorded, size_t most);
  const Recording* latest() const;  // of those that are recorded

  int device_;
  bool hopeless_ = false;
  std::vector<std::unique_ptr<Recording>> recordings_;  // the latest first
  uint64_t pool_ = 0;
  bool launched_ = false;
  cuda::Stream last_stream_ = nullptr;  // of the latest launch
  cuda::Event event_ = nullptr;

  const void* owner_ = nullptr;    // of what was begun
  Recording* begun_of_ = nullptr;  // which that is
  size_t begun_ = 0;               // pieces
  size_t checked_ = 0;             // leaves
  size_t copied_ = 0;              // leaves whose contents the graph has, if they are copied at all
};

}  // namespace tandem
