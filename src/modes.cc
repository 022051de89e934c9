#include "modes.h"

namespace tandem {

thread_local GradMode grad_mode;
bool anomaly_detection = false;
thread_local CallMode call_mode;
thread_local int16_t device_scope = -1;
thread_local int rank_in_process = 0;
thread_local int tracing_depth = 0;

}  // namespace tandem
