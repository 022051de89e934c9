// What one call of a compiled function came to, for replaying it: see Note [Replayed calls] in call_replay.h.
#pragma once
#include <Python.h>

#include <string>
#include <vector>

#include "operators/signature.h"
#include "plan/plan.h"
#include "tensor/generator.h"

namespace tandem {

struct CallRecord {
  struct Memory {
    Ref<Storage> storage;
    View view;
  };
  struct Stream {  // a generator as it was when the call began
    Generator* generator;
    uint64_t seed, offset;
  };

  std::string problem;  // why the call cannot be replayed, once something was in the way
  int64_t programs = 0;
  Ref<Plan> program;
  std::vector<Memory> leaves, outputs;
  std::vector<Argument> numbers;  // with the generator of a Seed, and the float object that a Float came from
  std::vector<int64_t> ints;
  std::vector<int32_t> written;  // leaves
  std::vector<Stream> streams;

  void refuse(const std::string& why) {
    if (problem.empty()) problem = why;
  }
};

// Observing a call (tandem/replay/observe.py) does not mean the compiler that runs in it.
class NotObserved {
 public:
  explicit NotObserved(bool needed) : thread_(needed ? PyThreadState_Get() : nullptr) {
    if (thread_) PyThreadState_EnterTracing(thread_);
  }
  ~NotObserved() {
    if (thread_) PyThreadState_LeaveTracing(thread_);
  }
  NotObserved(const NotObserved&) = delete;

 private:
  PyThreadState* thread_;
};

}  // namespace tandem
