// Which CPU this is, as far as generated code cares.
#pragma once
#include <string>

namespace tandem {

// Equal on machines for which the same code is generated: architecture, model, and the instruction sets that the
// processor has and the system has switched on.
std::string cpu_id();

// The level of processors whose code is as good here as what is compiled here, or "". See Note [Levels] in
// tandem/codegen/levels.py.
std::string cpu_level();

}  // namespace tandem
