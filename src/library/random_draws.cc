// random_draws (seed, offset, a[, b]) -> y, ints [distribution]: numbers whose drawing takes a varying number of random
// bits, one for each element of a and b.
//
// 0 gamma of shape a, 1 its logarithm, 2 Poisson of rate a, 3 binomial of count a and probability b. seed and offset
// are 0-d int64. Element i draws from Philox blocks of its own: counter offset + i in the low half, blocks 1, 2, ... in
// the high one, so that results depend on seed, offset and position only.
#include <cmath>

#include "device/parallel.h"
#include "library/registry.h"
#include "library/scalar.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

class Draws {
 public:
  Draws(uint64_t seed, uint64_t counter) : seed_(seed), counter_(counter) {}

  double uniform() {  // in (0, 1)
    return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53;
  }

  double normal() {  // Box and Muller; the second of a pair is kept
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double radius = std::sqrt(-2.0 * std::log(uniform())), angle = 2.0 * M_PI * uniform();
    spare_ = radius * std::sin(angle);
    has_spare_ = true;
    return radius * std::cos(angle);
  }

 private:
  uint64_t next() {
    if (at_ == 2) {
      refill();
      at_ = 0;
    }
    return words_[at_++];
  }

  void refill() {  // Philox4x32-10
    uint32_t c0 = static_cast<uint32_t>(counter_), c1 = static_cast<uint32_t>(counter_ >> 32), c2 = ++block_, c3 = 0;
    uint32_t k0 = static_cast<uint32_t>(seed_), k1 = static_cast<uint32_t>(seed_ >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c1 = static_cast<uint32_t>(p1);
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c3 = static_cast<uint32_t>(p0);
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    words_[0] = (uint64_t{c0} << 32) | c1;
    words_[1] = (uint64_t{c2} << 32) | c3;
  }

  uint64_t seed_, counter_;
  uint64_t words_[2];
  uint32_t block_ = 0;
  int at_ = 2;
  double spare_ = 0.0;
  bool has_spare_ = false;
};

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double gamma_at_least_one(Draws& draws, double shape) {  // Marsaglia and Tsang, 2000
  const double d = shape - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
  for (;;) {
    const double x = draws.normal(), t = 1.0 + c * x;
    if (t <= 0.0) continue;
    const double v = t * t * t, u = draws.uniform(), square = x * x;
    if (u < 1.0 - 0.0331 * square * square) return d * v;
    if (std::log(u) < 0.5 * square + d * (1.0 - v + std::log(v))) return d * v;
  }
}

double gamma(Draws& draws, double shape, bool logarithm) {
  if (!(shape > 0.0)) return shape == 0.0 ? (logarithm ? -std::numeric_limits<double>::infinity() : 0.0) : kNaN;
  if (shape >= 1.0) {
    const double drawn = gamma_at_least_one(draws, shape);
    return logarithm ? std::log(drawn) : drawn;
  }
  // Small shapes reach below the smallest number, so that their logarithm is what can be relied on.
  const double drawn = std::log(gamma_at_least_one(draws, shape + 1.0)) + std::log(draws.uniform()) / shape;
  return logarithm ? drawn : std::exp(drawn);
}

double poisson(Draws& draws, double rate) {
  if (!(rate >= 0.0)) return kNaN;
  if (rate < 10.0) {  // products of uniform numbers
    const double limit = std::exp(-rate);
    double product = draws.uniform(), count = 0.0;
    for (; product > limit; count += 1.0) product *= draws.uniform();
    return count;
  }
  // Transformed rejection with squeeze (Hormann, 1993)
  const double root = std::sqrt(rate), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), v_limit = 0.9277 - 3.6224 / (b - 2.0),
               log_rate = std::log(rate);
  for (;;) {
    const double u = draws.uniform() - 0.5, v = draws.uniform(), us = 0.5 - std::abs(u);
    const double k = std::floor((2.0 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= v_limit) return k;
    if (k < 0.0 || (us < 0.013 && v > us)) continue;
    if (std::log(v) + std::log(inverse_alpha) - std::log(a / (us * us) + b) <=
        k * log_rate - rate - std::lgamma(k + 1.0))
      return k;
  }
}

double tail(double k) {  // Stirling's correction
  constexpr double table[] = {0.08106146679532726,  0.04134069595540929, 0.02767792568499834, 0.02079067210376509,
                              0.01664469118982119,  0.01387612882307075, 0.01189670994589177, 0.01041126526197209,
                              0.009255462182712733, 0.008330563433362871};
  if (k < 10.0) return table[static_cast<int>(k)];
  const double square = (k + 1.0) * (k + 1.0);
  return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1.0);
}

double binomial(Draws& draws, double count, double probability) {
  if (!(count >= 0.0) || !(probability >= 0.0 && probability <= 1.0)) return kNaN;
  count = std::floor(count);
  if (probability > 0.5) return count - binomial(draws, count, 1.0 - probability);
  if (count == 0.0 || probability == 0.0) return 0.0;
  if (count * probability < 10.0) {  // waiting times between successes
    const double log_miss = std::log1p(-probability);
    double used = 0.0, successes = 0.0;
    for (;;) {
      used += std::ceil(std::log(draws.uniform()) / log_miss);
      if (used > count) return successes;
      successes += 1.0;
    }
  }
  // Transformed rejection (Hormann, 1993)
  const double deviation = std::sqrt(count * probability * (1.0 - probability)), b = 1.15 + 2.53 * deviation;
  const double a = -0.0873 + 0.0248 * b + 0.01 * probability, c = count * probability + 0.5, v_limit = 0.92 - 4.2 / b;
  const double r = probability / (1.0 - probability), alpha = (2.83 + 5.1 / b) * deviation;
  const double m = std::floor((count + 1.0) * probability);
  for (;;) {
    const double u = draws.uniform() - 0.5, us = 0.5 - std::abs(u);
    double v = draws.uniform();
    const double k = std::floor((2.0 * a / us + b) * u + c);
    if (us >= 0.07 && v <= v_limit) return k;
    if (k < 0.0 || k > count) continue;
    v = std::log(v * alpha / (a / (us * us) + b));
    const double bound = (m + 0.5) * std::log((m + 1.0) / (r * (count - m + 1.0))) +
                         (count + 1.0) * std::log((count - m + 1.0) / (count - k + 1.0)) +
                         (k + 0.5) * std::log(r * (count - k + 1.0) / (k + 1.0)) + tail(m) + tail(count - m) - tail(k) -
                         tail(count - k);
    if (v <= bound) return k;
  }
}

template <typename T>
void run(const View& a, const View& b, const View& y, uint64_t seed, uint64_t offset, int64_t distribution) {
  // Not reordered: the number of an element is its row-major position.
  const auto loop = make_loop<3>({&y, &a, &b}, 0, y.ndim, false);
  parallel_for(y.numel(), 150, [&](int64_t begin, int64_t end) {
    int64_t index[kMaxDims], at[3];
    loop.locate(begin, loop.ndim, index, at);
    for (int64_t i = begin; i < end; ++i) {
      Draws draws(seed, offset + static_cast<uint64_t>(i));
      const double first = static_cast<double>(static_cast<Wide<T>>(a.as<T>()[at[1]]));
      const double second = static_cast<double>(static_cast<Wide<T>>(b.as<T>()[at[2]]));
      const double drawn = distribution == 2   ? poisson(draws, first)
                           : distribution == 3 ? binomial(draws, first, second)
                                               : gamma(draws, first, distribution == 1);
      y.as<T>()[at[0]] = T(static_cast<Wide<T>>(drawn));
      loop.advance(loop.ndim, index, at);
    }
  });
}

void run_draws(const Call& call) {
  TD_CHECK((call.num_inputs == 3 || call.num_inputs == 4) && call.num_outputs == 1 && call.num_ints == 1);
  const View &y = call.outputs[0], &a = call.inputs[2], &b = call.inputs[call.num_inputs - 1];
  TD_CHECK(call.inputs[0].dtype == DType::Int64 && call.inputs[1].dtype == DType::Int64,
           "seed and offset of random_draws");
  TD_CHECK(a.dtype == y.dtype && b.dtype == y.dtype && a.ndim == y.ndim && b.ndim == y.ndim,
           "operands of random_draws");
  if (y.numel() == 0) return;
  const uint64_t seed = static_cast<uint64_t>(*call.inputs[0].as<int64_t>());
  const uint64_t offset = static_cast<uint64_t>(*call.inputs[1].as<int64_t>());
  for_float("random_draws", y.dtype,
            [&](auto type) { run<typename decltype(type)::type>(a, b, y, seed, offset, call.ints[0]); });
}

const Register random_draws("random_draws", &run_draws);

}  // namespace
}  // namespace tandem::library
