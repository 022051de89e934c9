// Whether operators are recorded, per thread.
#pragma once

namespace tandem {

struct GradMode {
  bool enabled = true;
  bool inference = false;
};
extern thread_local GradMode grad_mode;
extern bool anomaly_detection;  // check results and gradients for NaN

}  // namespace tandem
