#include "modes.h"

namespace tandem {

constinit thread_local GradMode grad_mode;
bool anomaly_detection = false;
constinit thread_local CallMode call_mode;
constinit thread_local int16_t device_scope = -1;
constinit thread_local int rank_in_process = 0;
constinit thread_local int tracing_depth = 0;

}  // namespace tandem
