#include "overrides.h"

namespace tandem {

bool tensors_override = false;
constinit thread_local bool overrides_disabled = false;

}  // namespace tandem
