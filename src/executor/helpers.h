// Threads that help a run: for tasks that wait, and for expensive ones that can go side by side. Kept for the next run.
#pragma once
#include <functional>

namespace tandem::flow {

void start_helper(std::function<void()> work);  // work must not throw

}  // namespace tandem::flow
