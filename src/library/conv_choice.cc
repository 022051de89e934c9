#include "library/conv_choice.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "device/parallel.h"
#include "library/deterministic.h"
#include "library/kernels/kernels.h"
#include "library/layout.h"
#include "library/scratch.h"
#include "library/strided.h"
#include "switches.h"

namespace tandem::library {
namespace {

constexpr double kWorth = 4e6;  // multiplications of a convolution that are worth a measurement
constexpr double kMost = 2e8;   // of one that is measured
constexpr double kMostElements = 3e6;
constexpr int kRuns = 3;
constexpr double kHopeless = 1.5;  // times the best one: not tried again
constexpr double kMargin = 1.04;   // by how much another way must be quicker than the one that is suggested
constexpr double kQuiet = 1.08;    // by how much the second of the least times may be longer
constexpr int kSettled = 4;

struct Known {
  ConvFinding finding{};
  bool used = false;            // by this process: it stays as it is
  bool fresh = false;           // measured, and not told yet
  std::optional<Conv> waiting;  // met when there was no time left to measure it; without memory
};

std::mutex mutex;  // of all below
std::unordered_map<std::string, Known> known;
double budget = 0;
std::atomic<int> forced{-1};

bool surely_last(const View& v) {
  return is_channels_last(v) && !is_channels_first(v);
}

double multiplications(const Geometry& g) {
  return static_cast<double>(g.batch * g.positions() * g.taps()) * g.out_channels * (g.in_channels / g.groups);
}

std::string key_of(const Conv& conv) {
  const Geometry& g = conv.geometry;
  std::string key = kernels().name;
  key += '/' + std::to_string(num_threads()) + '/' + std::to_string(static_cast<int>(conv.kind));
  key += '/' + std::to_string(static_cast<int>(conv.x.dtype));
  key += surely_last(conv.x) ? 'l' : 'f', key += surely_last(conv.y) ? 'l' : 'f';
  const auto add = [&](int64_t word) { key += '/', key += std::to_string(word); };
  add(switches::get(switches::winograd)), add(std::bit_width(static_cast<uint64_t>(g.batch)));
  for (const int64_t word : {g.in_channels, g.out_channels, g.groups}) add(word);
  for (const auto* list : {g.in, g.kernel, g.stride, g.pad_low, g.pad_high, g.dilation})
    for (int d = 3 - g.spatial; d < 3; ++d) add(list[d]);
  return key;
}

// Without a measurement: the first of these that takes the case, by the instruction set.
Ways suggested(const Conv& conv) {
  const Geometry& g = conv.geometry;
  const bool last = surely_last(conv.x) || surely_last(conv.y);
  const bool wide = !std::strcmp(kernels().name, "avx512");  // direct sums gain more by it than Winograd's method
  const bool alone = g.groups == g.in_channels && g.groups > 1;
  Ways ways;
  // oneDNN takes 1.3 to 10 times as long for gradients of single channels, with either instruction set.
  if (alone && (g.spatial == 1 || conv.kind != ConvKind::Forward)) ways.add(ConvWay::kDepthwise);
  if (!wide) ways.add(ConvWay::kWinograd);
  if (!wide || !last) ways.add(ConvWay::kPointwise);
  ways.add(last ? ConvWay::kOneDnnLast : ConvWay::kOneDnnFirst);
  for (const ConvWay way : {ConvWay::kWinograd, ConvWay::kPointwise, ConvWay::kDepthwise}) ways.add(way);
  return ways;
}

// Memory of its own for measurements, of the same layout and type.
struct Stage {
  Conv conv;
  Scratch<char> memory[4];
  View bias;

  explicit Stage(const Conv& original) : conv(original) {
    Geometry& g = conv.geometry;
    const double each = multiplications(g) / g.batch;
    const double elements = static_cast<double>(std::max(original.x.numel(), original.y.numel())) / g.batch;
    const double fit = std::min(kMost / each, kMostElements / elements);
    g.batch = std::clamp<int64_t>(static_cast<int64_t>(fit), 1, g.batch);
    conv.x.shape[0] = conv.y.shape[0] = g.batch;
    int i = 0;
    for (View* v : {&conv.x, &conv.w, &conv.y}) {
      const bool last = v != &conv.w && surely_last(*v);
      v->data = room(memory[i++], *v);
      last ? set_channels_last(*v) : set_contiguous(*v);
    }
    if (original.bias)
      bias = *original.bias, bias.data = room(memory[3], bias), set_contiguous(bias), conv.bias = &bias;
  }

  static char* room(Scratch<char>& memory, const View& v) {  // with numbers whose products stay small
    const int64_t count = v.numel();
    memory.resize(count * item_size(v.dtype));
    if (v.dtype == DType::Float32)
      for (int64_t i = 0; i < count; ++i)
        reinterpret_cast<float*>(memory.data())[i] = 0.01f * static_cast<float>(i % 17 - 8);
    else
      std::memset(memory.data(), 0x3c, count * item_size(v.dtype));  // small in 16-bit floats
    return memory.data();
  }
};

// Takes turns, so that what disturbs one way disturbs the others.
ConvFinding measure(const Conv& original, const std::string& key) {
  const Stage stage(original);
  const ScratchPool pool = std::exchange(scratch_pool, {});  // that belongs to the call
  std::vector<double> times[kConvWays];
  bool tried[kConvWays];
  std::fill_n(tried, kConvWays, true);
  double best = INFINITY;
  for (int run = 0; run <= kRuns; ++run)
    for (int way = 0; way < kConvWays; ++way) {
      if (!tried[way]) continue;
      const auto started = std::chrono::steady_clock::now();
      tried[way] = compute_by(static_cast<ConvWay>(way), stage.conv);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - started;
      if (!tried[way] || !run) continue;  // the first one is for caches, and for what oneDNN makes
      times[way].push_back(taken.count());
      best = std::min(best, taken.count());
      if (taken.count() > kHopeless * best) tried[way] = run < 2;
    }
  scratch_pool = pool;
  ConvFinding found{key, {}, kSettled / 2};
  for (int way = 0; way < kConvWays; ++way) {
    std::sort(times[way].begin(), times[way].end());
    if (times[way].empty()) continue;
    found.seconds[way] = times[way][0];
    if (times[way].size() > 2 && times[way][1] > kQuiet * times[way][0]) found.trust = kSettled / 4;
  }
  return found;
}

void join(ConvFinding& found, const ConvFinding& before) {
  for (int way = 0; way < kConvWays; ++way)
    if (before.seconds[way] > 0)
      found.seconds[way] =
          found.seconds[way] > 0 ? std::min(found.seconds[way], before.seconds[way]) : before.seconds[way];
  found.trust += before.trust;
}

// The quickest way before all others, if it was measured.
Ways quickest(const ConvFinding& found, const Ways& suggestion) {
  const auto seconds = [&](ConvWay way) { return found.seconds[static_cast<int>(way)]; };
  ConvWay best = suggestion.list[0];
  double least = INFINITY;
  for (const ConvWay way : suggestion)
    if (seconds(way) > 0) {
      best = way, least = seconds(way) / kMargin;
      break;
    }
  for (int i = 0; i < kConvWays; ++i)
    if (found.seconds[i] > 0 && found.seconds[i] < least) least = found.seconds[i], best = static_cast<ConvWay>(i);
  Ways ways;
  if (least < INFINITY) ways.add(best);
  for (const ConvWay way : suggestion) ways.add(way);
  return ways;
}

void measure_for(Known& entry, const Conv& conv, const std::string& key) {
  const ConvFinding before = entry.finding;
  entry.finding = measure(conv, key);
  join(entry.finding, before);
  entry.fresh = true;
  entry.waiting.reset();
}

bool is_plain(const Conv& conv) {  // nothing of it belongs to the call
  return !conv.bias && !conv.fused && !conv.residual && !conv.kept;
}

bool measurable(const Conv& conv) {
  const auto plain = [](const View& v) { return is_channels_first(v) || is_channels_last(v); };
  return plain(conv.x) && plain(conv.y) && multiplications(conv.geometry) >= kWorth;
}

}  // namespace

Ways ways_of(const Conv& conv) {
  const Ways suggestion = suggested(conv);
  if (const int way = forced.load(std::memory_order_relaxed); way >= 0) {
    Ways ways;
    ways.add(static_cast<ConvWay>(way));
    for (const ConvWay other : suggestion) ways.add(other);
    return ways;
  }
  if (deterministic() || !measurable(conv)) return suggestion;
  const std::string key = key_of(conv);
  const std::lock_guard lock(mutex);
  if (budget <= 0 && known.empty()) return suggestion;
  Known& entry = known[key];
  if (!preparing() && !entry.used) {
    if (entry.finding.trust < kSettled) {
      if (budget > 0 && !in_parallel()) {
        const auto started = std::chrono::steady_clock::now();
        measure_for(entry, conv, key);
        budget -= std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
      } else if (is_plain(conv)) {
        entry.waiting = conv;
        for (View* v : {&entry.waiting->x, &entry.waiting->w, &entry.waiting->y}) v->data = nullptr;
      }
    }
    entry.used = true;
  }
  return quickest(entry.finding, suggestion);
}

void know_convolution(const ConvFinding& finding) {
  const std::lock_guard lock(mutex);
  Known& entry = known[finding.key];
  if (!entry.used) entry.finding = finding;
}

std::vector<ConvFinding> convolutions_found() {
  const std::lock_guard lock(mutex);
  std::vector<ConvFinding> found;
  for (auto& [key, entry] : known)
    if (std::exchange(entry.fresh, false)) found.push_back(entry.finding);
  return found;
}

void measure_waiting_convolutions(double seconds) {
  const std::lock_guard lock(mutex);
  const auto started = std::chrono::steady_clock::now();
  for (auto& [key, entry] : known) {
    if (!entry.waiting) continue;
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count() >= seconds) return;
    const Conv conv = *entry.waiting;
    measure_for(entry, conv, key);
  }
}

void prefer_convolutions(int way) {
  forced = way;
}

void set_convolution_budget(double seconds) {
  const std::lock_guard lock(mutex);
  budget = seconds;
}

}  // namespace tandem::library
