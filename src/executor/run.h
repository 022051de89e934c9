// One run of a dataflow graph.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "executor/cancellation.h"
#include "executor/flow.h"

namespace tandem::flow {

struct Options {
  int threads = 1;                     // that compute at once
  void* state = nullptr;               // for tasks
  Token (*index)(int64_t);             // a Merge's second output: which input it took
  std::function<void()> begin_thread;  // called by a helper thread before it works for the run
  std::function<bool()> interrupted;   // asked now and then by the calling thread; true stops the run
  std::shared_ptr<Cancellation> cancellation = std::make_shared<Cancellation>();
};

struct Outcome {
  std::vector<Token> fetched;  // null where the value was dead
  int32_t failed_node = -1;
  std::exception_ptr failure;
  bool interrupted = false;
  int64_t executed = 0;         // tasks run
  int64_t skipped = 0;          // nodes that were dead
  int64_t most_iterations = 0;  // of one frame, under way at once
};

Outcome run(const Graph& graph, std::vector<Token> sources, const Options& options);

}  // namespace tandem::flow
