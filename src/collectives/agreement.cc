// How ranks agree to record and to launch graphs that have collectives; see Note [Replay] in replay/replay.h.
#include <algorithm>
#include <map>
#include <mutex>

#include "collectives/background.h"
#include "collectives/communicator.h"
#include "library/cuda/host.h"
#include "library/registry.h"
#include "replay/replay.h"

namespace tandem::collectives {
namespace {

// Integers of the routine "collective" (routine.cc): kind, token, size, reduction, root, tag.
std::shared_ptr<Communicator> group_of(const Plan& plan, const PlanRun& run) {
  int64_t token = -1;
  for (const Instruction& in : plan.instructions) {
    if (!in.waits) continue;
    const auto kind = static_cast<Kind>(run.slot(in.ints[0]));
    const int64_t its = run.slot(in.ints[1]);
    if (kind == Kind::Send || kind == Kind::Receive || (token >= 0 && its != token)) return nullptr;
    token = its;
  }
  const std::shared_ptr<Context> context = Context::current();
  return context && token >= 0 ? context->find(token) : nullptr;
}

int64_t number_of_group(const Plan& plan, const PlanRun& run) {
  const auto group = group_of(plan, run);
  return group ? group->number : -1;
}

// What must be alike on all ranks: the collectives, and the sizes of those whose operands have one size everywhere.
Request request_of(const Plan& plan, const PlanRun& run) {
  Request request{Kind::Program};
  request.line = library::line_of_call;
  uint64_t hash = 14695981039346656037ull;
  const auto mix = [&](int64_t value) { hash = (hash ^ static_cast<uint64_t>(value)) * 1099511628211ull; };
  Piece counted;
  for (const Instruction& in : plan.instructions) {
    if (!in.waits) continue;
    ++counted.in_count;
    for (int i : {0, 2, 3, 4, 5}) mix(run.slot(in.ints[i]));
    const View first = run.view(in.values[0]);
    mix(static_cast<int64_t>(first.dtype));
    const auto kind = static_cast<Kind>(run.slot(in.ints[0]));
    if (kind == Kind::AllReduce || kind == Kind::Broadcast || kind == Kind::Reduce) mix(first.numel());
    if (in.origin && counted.in_count == 1)
      request.line = in.origin->file.substr(in.origin->file.rfind('/') + 1) + ":" + std::to_string(in.origin->line);
  }
  request.tag = static_cast<int64_t>(hash);
  request.pieces.push_back(counted);
  return request;
}

int64_t agree(const Plan& plan, const PlanRun& run, int64_t wish) {
  const auto group = group_of(plan, run);
  const Request request = request_of(plan, run);
  const cuda::GilReleased released;  // other ranks of this process need it to come here
  if (group->has_background()) group->background().finish();
  const std::vector<int64_t> wishes = group->meet(request, wish);
  const auto [least, most] = std::minmax_element(wishes.begin(), wishes.end());
  return *least == *most ? *least : std::min<int64_t>(*least, 1);
}

int64_t new_recording(const Plan& plan, const PlanRun& run) {
  static std::mutex mutex;  // guards the counts
  static auto* counts = new std::map<int64_t, int64_t>;
  const int64_t group = number_of_group(plan, run);
  const std::lock_guard guard(mutex);
  return (*counts)[group]++;
}

void launched(const Plan& plan, const PlanRun& run) {
  const auto group = group_of(plan, run);
  if (!group->of_threads() || group->size() == 1) return;
  const Request request = request_of(plan, run);
  const cuda::GilReleased released;  // other ranks of this process need it to come here
  group->meet(request, 0);
}

const bool connected = (agreement = {&number_of_group, &agree, &new_recording, &launched}, true);

}  // namespace
}  // namespace tandem::collectives
