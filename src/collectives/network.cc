#include "collectives/network.h"

namespace tandem::collectives {

void World::tell(const std::string& failure) {
  const std::lock_guard guard(mutex_);
  if (reason_.empty()) reason_ = failure;
  if (over_.exchange(true)) return;
  for (const auto& [number, call] : when_over_) call();
}

std::string World::why() const {
  const std::lock_guard guard(mutex_);
  return reason_;
}

int64_t World::when_over(std::function<void()> call) {
  const std::lock_guard guard(mutex_);
  if (over_) call();
  when_over_[++calls_] = std::move(call);
  return calls_;
}

void World::forget(int64_t call) {
  const std::lock_guard guard(mutex_);
  when_over_.erase(call);
}

}  // namespace tandem::collectives
