// Programs on a device as CUDA graphs: after a few plain runs, the launches of a program are recorded once and replayed
// with one call.
//
// Note [Replay]
// A recorded graph has addresses in it. Memory that the program takes for itself comes from a pool that belongs to the
// graph. Inputs are used where they lie if they did not move between the runs before (parameters, optimiser state), and
// are copied into memory of the graph if they did (a batch). Numbers, which change from call to call (a learning rate,
// the random offset), are arguments of single launches and are put into the graph anew where they changed. Results are
// copied out, so that they belong to whoever holds them. Sizes are fixed: other sizes run plainly, or get a graph of
// their own.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "device/cuda/driver.h"
#include "tensor/storage.h"

namespace tandem {

struct Plan;
struct Instruction;
class PlanRun;

// A launch that takes values from the host.
struct HostNode {
  cuda::GraphNode node;
  const Instruction* instruction;
  std::vector<uint64_t> words;
};

class Replay {
 public:
  explicit Replay(int device) : device_(device) {}
  ~Replay();
  Replay(const Replay&) = delete;

  // Runs the program, by the graph where possible. Called with the GIL.
  void run(const Plan& plan, PlanRun& run);

 private:
  struct Input {
    char* address = nullptr;  // where it was in the last run, or is in the graph
    bool copied = false;
    Ref<Storage> place;  // of copied ones
  };
  bool record(const Plan& plan, PlanRun& run);
  bool fits(const Plan& plan, PlanRun& run);
  void launch(PlanRun& run);
  void forget();

  int device_;
  int runs_ = 0, recordings_ = 0;
  bool hopeless_ = false;
  std::vector<Input> inputs_;
  std::vector<int64_t> ints_;
  std::vector<char*> addresses_;  // of the plan's values, in the graph
  std::vector<HostNode> host_nodes_;
  uint64_t pool_ = 0;
  cuda::Graph graph_ = nullptr;
  cuda::GraphExec executable_ = nullptr;
};

}  // namespace tandem
