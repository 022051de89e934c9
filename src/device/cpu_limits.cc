#include "device/cpu_limits.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

namespace tandem {
namespace {

#ifdef __linux__
int cpus_in_affinity_mask() {
  for (int cpus = 1024; cpus <= (1 << 20); cpus *= 2) {  // the call fails while the mask is smaller than the kernel's
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (!set) return 0;
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    CPU_ZERO_S(bytes, set);
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return 0;
}

// CPUs' worth of quota in one cgroup folder; infinity where there is no limit.
double quota_v2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return INFINITY;
  return std::atof(quota.c_str()) / period;
}

double quota_v1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"), period_file(folder + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  if (!(quota_file >> quota) || !(period_file >> period) || quota <= 0 || period <= 0) return INFINITY;
  return quota / period;
}

// A limit on any ancestor holds too. Inside a container the path may name folders of the host that cannot be seen;
// those read as "no limit", and the mount's root is the container's own group.
template <typename Quota>
double tightest(const std::string& root, std::string path, Quota quota) {
  double limit = quota(root);
  while (path.size() > 1) {
    limit = std::min(limit, quota(root + path));
    path.resize(path.rfind('/'));
  }
  return limit;
}

double cgroup_quota() {
  double limit = INFINITY;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // hierarchy:controllers:path
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) {
      limit = std::min(limit, tightest("/sys/fs/cgroup", path, quota_v2));
      continue;
    }
    std::istringstream names(controllers);
    for (std::string name; std::getline(names, name, ',');) {
      if (name == "cpu") {
        for (const auto& root : {std::string("/sys/fs/cgroup/cpu"), "/sys/fs/cgroup/" + controllers})
          limit = std::min(limit, tightest(root, path, quota_v1));
      }
    }
  }
  return limit;
}
#endif

}  // namespace

int usable_cpus() {
  int cpus = static_cast<int>(std::thread::hardware_concurrency());
#ifdef __linux__
  if (const int allowed = cpus_in_affinity_mask()) cpus = allowed;
  const double quota = cgroup_quota();
  if (quota < cpus) cpus = static_cast<int>(std::ceil(quota));
#endif
  return std::max(cpus, 1);
}

}  // namespace tandem
