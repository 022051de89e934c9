// What calls of operators depend on besides their arguments, per thread.
#pragma once
#include <cstdint>

namespace tandem {

// Whether operators are recorded.
struct GradMode {
  bool enabled = true;
  bool inference = false;
};
extern constinit thread_local GradMode grad_mode;
extern bool anomaly_detection;  // check results and gradients for NaN

// What operators depend on besides their arguments. Device: where those without tensors among their arguments run, 0
// the CPU, k cuda:(k - 1). Autocast: 0 off, else 1 + the code of the dtype for products, plus 16 for cuda rather than
// the CPU. Axes first: a tensor without axes does not widen one that has some; Note [Tensors without axes] in
// tandem/promotion.py.
struct CallMode {
  uint8_t device = 0;
  uint8_t autocast = 0;
  uint8_t axes_first = 0;
};
extern constinit thread_local CallMode call_mode;

// The device of the innermost `with td.device(...)`, or -1: captured calls tell their graphs. From kFirstTask on it is
// a task of a cluster (tandem/devices.py numbers them), on which backward of what is called there runs too.
constexpr int16_t kFirstTask = 64;
extern constinit thread_local int16_t device_scope;

// Which of several ranks this thread is, where ranks are threads of one process: what they run at the same time must
// not share memory. 0: the process is one.
extern constinit thread_local int rank_in_process;

// Set while Python functions are traced in this thread: calls then go straight to the Python implementation.
extern constinit thread_local int tracing_depth;

// Around calls of Python code that traces: an interrupt may come between its entering a trace and its noting that it
// has to leave it.
struct KeepTracingDepth {
  const int depth = tracing_depth;
  ~KeepTracingDepth() { tracing_depth = depth; }
};

}  // namespace tandem
