#include "library/conv_choice.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "device/parallel.h"
#include "library/choices.h"
#include "library/deterministic.h"
#include "library/kernels/kernels.h"
#include "library/layout.h"
#include "library/measure.h"
#include "library/scratch.h"
#include "library/strided.h"
#include "switches.h"

namespace tandem::library {
namespace {

constexpr double kWorth = 4e6;  // multiplications of a convolution that are worth a measurement
constexpr double kMost = 2e8;   // of one that is measured
constexpr double kMostElements = 3e6;
constexpr int kRuns = 3;
constexpr double kHopeless = 1.5;    // times the best one: not tried again
constexpr double kMargin = 1.08;     // by how much another way must be quicker than the one that is suggested, and
constexpr double kBusyMargin = 1.5;  // where measurements vary
constexpr double kQuiet = 1.08;      // by how much the second of the least times may be longer
constexpr int kAsSuggested = 9;      // instead of a way

std::atomic<double> budget{0};  // seconds
std::atomic<int> forced{-1};

bool surely_last(const View& v) {
  return is_channels_last(v) && !is_channels_first(v);
}

double multiplications(const Geometry& g) {
  return static_cast<double>(g.batch * g.positions() * g.taps()) * g.out_channels * (g.in_channels / g.groups);
}

std::string key_of(const Conv& conv) {
  const Geometry& g = conv.geometry;
  std::string key = std::string("convolution/") + kernels().name;
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

// The least seconds of each way, 0 where it does not take the case, and whether they are to be trusted.
struct Times {
  double seconds[kConvWays] = {};
  bool quiet = true;
};

// Ways take turns, so that what disturbs one of them disturbs the others.
Times measure(const Stage& stage, Clock clock) {
  std::vector<double> times[kConvWays];
  bool tried[kConvWays];
  std::fill_n(tried, kConvWays, true);
  double best = INFINITY;
  for (int run = 0; run <= kRuns; ++run)
    for (int way = 0; way < kConvWays; ++way) {
      if (!tried[way]) continue;
      const double started = seconds_of(clock);
      tried[way] = compute_by(static_cast<ConvWay>(way), stage.conv);
      const double taken = seconds_of(clock) - started;
      if (!tried[way] || !run) continue;  // the first one is for caches, and for what oneDNN makes
      times[way].push_back(taken);
      best = std::min(best, taken);
      if (taken > kHopeless * best) tried[way] = run < 2;
    }
  Times found;
  for (int way = 0; way < kConvWays; ++way) {
    std::sort(times[way].begin(), times[way].end());
    if (times[way].empty()) continue;
    found.seconds[way] = times[way][0];
    if (times[way].size() > 2 && times[way][1] > kQuiet * times[way][0]) found.quiet = false;
  }
  return found;
}

// See Note [Measured beside other work].
Times measure(const Conv& original) {
  const Stage stage(original);
  const ScratchPool pool = std::exchange(scratch_pool, {});  // that belongs to the call
  Times times = measure(stage, num_threads() == 1 ? Clock::kThread : Clock::kWall);
  if (!times.quiet && num_threads() > 1) {
    const Alone alone;
    times = measure(stage, Clock::kThread);
  }
  scratch_pool = pool;
  return times;
}

// The quickest way, if it is clearly quicker than the suggested one.
int quickest(const Times& times, const Ways& suggestion) {
  int best = kAsSuggested;
  double least = INFINITY;
  for (const ConvWay way : suggestion)
    if (const double seconds = times.seconds[static_cast<int>(way)]; seconds > 0) {
      least = seconds / (times.quiet ? kMargin : kBusyMargin);
      break;
    }
  for (int way = 0; way < kConvWays; ++way)
    if (times.seconds[way] > 0 && times.seconds[way] < least) least = times.seconds[way], best = way;
  return best;
}

Choice choose(const Conv& conv, const Ways& suggestion) {
  const bool asked = switches::get(switches::tune);
  if (in_parallel() || !(asked || budget.load() > 0)) return {kAsSuggested, false};
  const double started = seconds_of(Clock::kWall);
  const int way = quickest(measure(conv), suggestion);
  budget = budget.load() - (seconds_of(Clock::kWall) - started);
  return {way, true};
}

Ways first(int way, const Ways& others) {
  Ways ways;
  if (way >= 0 && way < kConvWays) ways.add(static_cast<ConvWay>(way));
  for (const ConvWay other : others) ways.add(other);
  return ways;
}

bool measurable(const Conv& conv) {
  const auto plain = [](const View& v) { return is_channels_first(v) || is_channels_last(v); };
  return plain(conv.x) && plain(conv.y) && multiplications(conv.geometry) >= kWorth;
}

}  // namespace

Ways ways_of(const Conv& conv) {
  const Ways suggestion = suggested(conv);
  if (const int way = forced.load(std::memory_order_relaxed); way >= 0) return first(way, suggestion);
  if (deterministic() || !measurable(conv)) return suggestion;
  const std::string key = key_of(conv);
  if (preparing()) return first(already_chosen(key).value_or(Choice{kAsSuggested}).way, suggestion);
  return first(chosen(key, [&] { return choose(conv, suggestion); }).way, suggestion);
}

void prefer_convolutions(int way) {
  forced = way;
}

void set_convolution_budget(double seconds) {
  budget = seconds;
}

}  // namespace tandem::library
