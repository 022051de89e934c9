// Which CPU this is, as far as generated code cares.
#pragma once
#include <string>

namespace tandem {

// Equal on machines for which the same code is generated: architecture, model, and the instruction sets that the
// processor has and the system has switched on.
std::string cpu_id();

}  // namespace tandem
