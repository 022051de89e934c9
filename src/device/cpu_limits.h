// How many CPUs this process may use.
#pragma once

namespace tandem {

int usable_cpus();  // the smaller of the affinity mask and the cgroup quota (v1 or v2), at least 1

}  // namespace tandem
