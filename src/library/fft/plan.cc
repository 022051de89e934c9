#include "library/fft/plan.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <mutex>
#include <numbers>
#include <unordered_map>

#include "check.h"
#include "device/parallel.h"
#include "fork_guard.h"
#include "library/scratch.h"

namespace tandem::library::fft {

template <>
const FftKernels<float>& functions<float>() {
  return kernels().fft_f32;
}
template <>
const FftKernels<double>& functions<double>() {
  return kernels().fft_f64;
}

template <typename T>
void root(int64_t k, int64_t n, T* to) {
  using Wide = std::conditional_t<std::is_same_v<T, float>, double, long double>;
  const Wide angle = 2 * std::numbers::pi_v<Wide> * static_cast<Wide>(k % n) / static_cast<Wide>(n);
  to[0] = static_cast<T>(std::cos(angle));
  to[1] = static_cast<T>(-std::sin(angle));
}

namespace {

std::vector<int64_t> prime_factors(int64_t n) {
  std::vector<int64_t> found;
  for (int64_t p = 2; p * p <= n; p += p == 2 ? 1 : 2)
    for (; n % p == 0; n /= p) found.push_back(p);
  if (n > 1) found.push_back(n);
  return found;
}

// Radices for a size: eights and fours for the powers of two, large ones last, where there are fewest twiddles.
std::vector<int64_t> radices(int64_t n) {
  std::vector<int64_t> found;
  while (n % 8 == 0 && n != 16) {
    found.push_back(8);
    n /= 8;
  }
  while (n % 4 == 0) {
    found.push_back(4);
    n /= 4;
  }
  for (const int64_t p : prime_factors(n)) found.push_back(p);
  return found;
}

int64_t smooth_size(int64_t least) {  // the smallest 2^a 3^b 5^c from `least` on
  int64_t best = 1;
  while (best < least) best *= 2;
  for (int64_t five = 1; five < best; five *= 5)
    for (int64_t three = five; three < best; three *= 3) {
      int64_t size = three;
      while (size < least) size *= 2;
      best = std::min(best, size);
    }
  return best;
}

// exp(-pi i k^2 / n) for k < n.
template <typename T>
std::vector<T> chirp_of(int64_t n) {
  std::vector<T> made(2 * n);
  int64_t square = 0;  // of k, modulo 2 n
  for (int64_t k = 0; k < n; ++k) {
    root<T>(square, 2 * n, &made[2 * k]);
    square = (square + 2 * k + 1) % (2 * n);
  }
  return made;
}

// The conjugated chirp, which a convolution of this size has as its kernel, over the size.
template <typename T>
std::vector<T> kernel_of(const std::vector<T>& chirp, int64_t n, int64_t size) {
  std::vector<T> made(2 * size, T(0));
  for (int64_t k = 0; k < n; ++k)
    for (const int64_t at : {k, (size - k) % size}) {
      made[2 * at] = chirp[2 * k] / size;
      made[2 * at + 1] = -chirp[2 * k + 1] / size;
    }
  return made;
}

template <typename T>
std::vector<T> conjugated(const std::vector<T>& numbers) {
  std::vector<T> made(numbers);
  for (size_t i = 1; i < made.size(); i += 2) made[i] = -made[i];
  return made;
}

// What was made for a size, or makes it. Keeps the latest ones.
template <typename Value>
class Cache {
 public:
  template <typename Make>
  std::shared_ptr<const Value> get(int64_t n, Make&& make) {
    {
      const std::lock_guard guard(mutex_);
      if (const auto found = values_.find(n); found != values_.end()) return found->second;
    }
    std::shared_ptr<const Value> made = make();  // without the lock: a plan may need others
    const std::lock_guard guard(mutex_);
    if (values_.size() >= 64) values_.clear();
    return values_[n] = made;
  }

 private:
  std::mutex mutex_;  // guards the following
  ForkGuard fork_{mutex_};
  std::unordered_map<int64_t, std::shared_ptr<const Value>> values_;
};

}  // namespace

bool is_smooth(int64_t n) {
  const auto factors = prime_factors(n);
  return factors.empty() || *std::max_element(factors.begin(), factors.end()) <= kLargestRadix;
}

// -- in lanes

template <typename T>
void LanePlan<T>::add_passes(int64_t n) {
  int64_t m = n, s = 1;
  for (const int64_t radix : radices(n)) {
    const int64_t length = m;
    m /= radix;
    std::vector<T> twiddles(2 * m * (radix - 1)), roots;
    for (int64_t p = 0; p < m; ++p)
      for (int64_t r = 1; r < radix; ++r) root<T>(p * r, length, &twiddles[2 * (p * (radix - 1) + r - 1)]);
    if (radix > 5 && radix != 8) {
      roots.resize(2 * radix);
      for (int64_t i = 0; i < radix; ++i) {
        root<T>(i, radix, &roots[2 * i]);
        roots[2 * i + 1] = -roots[2 * i + 1];
      }
    }
    passes_.push_back({radix, m, s, nullptr, nullptr});
    tables_.push_back(std::move(twiddles));
    tables_.push_back(std::move(roots));
    s *= radix;
  }
  for (size_t i = 0; i < passes_.size(); ++i) {
    passes_[i].twiddles = tables_[2 * i].data();
    passes_[i].roots = tables_[2 * i + 1].data();
  }
}

template <typename T>
LanePlan<T>::LanePlan(int64_t n) : n_(n), room_(n) {
  if (is_smooth(n)) {
    add_passes(n);
    return;
  }
  room_ = smooth_size(2 * n - 1);
  add_passes(room_);
  chirp_ = chirp_of<T>(n);
  back_ = conjugated(chirp_);
  const std::vector<T> kernel = kernel_of(chirp_, n, room_);
  spectrum_.resize(2 * room_);
  line_plan<T>(room_)->run(kernel.data(), 1, spectrum_.data(), 1, false, T(1));
}

template <typename T>
T* LanePlan<T>::run(T* x, T* y) const {
  const FftKernels<T>& f = functions<T>();
  const int count = static_cast<int>(passes_.size());
  if (chirp_.empty()) return f.passes(passes_.data(), count, x, y);
  f.multiply(x, n_, chirp_.data(), false);
  std::fill(x + n_ * 2 * f.width, x + room_ * 2 * f.width, T(0));
  T* at = f.passes(passes_.data(), count, x, y);
  f.multiply(at, room_, spectrum_.data(), true);
  at = f.passes(passes_.data(), count, at, at == x ? y : x);
  f.multiply(at, n_, back_.data(), true);
  return at;
}

// -- one line

template <typename T>
LinePlan<T>::LinePlan(int64_t n) : n_(n) {
  if (n <= kSmallLine) {
    first_ = lane_plan<T>(n);
    return;
  }
  if (!is_smooth(n)) {
    const int64_t size = smooth_size(2 * n - 1);
    inner_ = line_plan<T>(size);
    chirp_ = chirp_of<T>(n);
    const std::vector<T> kernel = kernel_of(chirp_, n, size);
    spectrum_.resize(2 * size);
    inner_->run(kernel.data(), 1, spectrum_.data(), 1, false, T(1));
    return;
  }
  // The divisors that waste the fewest lanes, and then the most equal ones.
  const int64_t width = functions<T>().width;
  const auto up = [&](int64_t size) { return (size + width - 1) / width * width; };
  double best = 0;
  for (int64_t a = 1; a * a <= n; ++a) {
    if (n % a) continue;
    for (const int64_t n1 : {a, n / a}) {
      const int64_t n2 = n / n1;
      const double waste = double(up(n1)) * n2 * std::log2(n2 + 1) + double(up(n2)) * n1 * std::log2(n1 + 1);
      const double cost = waste * (1 + 0.1 * std::abs(std::log2(double(n1) / n2)));
      if (best == 0 || cost < best) {
        best = cost;
        n1_ = n1;
        n2_ = n2;
      }
    }
  }
  first_ = lane_plan<T>(n1_);
  second_ = lane_plan<T>(n2_);
  const int64_t blocks = up(n2_) / width, coarse = (n1_ + 15) / 16;
  fine_.resize(blocks * 16 * 2 * width);
  coarse_.resize(blocks * coarse * 2 * width);
  for (int64_t j = 0; j < blocks * width; ++j) {
    const int64_t block = j / width, lane = j % width;
    const auto fill = [&](std::vector<T>& table, int64_t count, int64_t factor) {
      for (int64_t i = 0; i < count; ++i) {
        T value[2];
        root<T>(j * i * factor, n, value);
        T* at = &table[(block * count + i) * 2 * width + lane];
        at[0] = value[0];
        at[width] = value[1];
      }
    };
    fill(fine_, 16, 1);
    fill(coarse_, coarse, 16);
  }
}

template <typename T>
void LinePlan<T>::run(const T* x, int64_t x_stride, T* y, int64_t y_stride, bool swap, T factor) const {
  if (inner_) return run_chirp(x, x_stride, y, y_stride, swap, factor);
  if (!second_) return run_small(x, x_stride, y, y_stride, swap, factor);
  run_split(x, x_stride, y, y_stride, swap, factor);
}

template <typename T>
void LinePlan<T>::run_small(const T* x, int64_t x_stride, T* y, int64_t y_stride, bool swap, T factor) const {
  const FftKernels<T>& f = functions<T>();
  const size_t block = first_->room() * 2 * f.width;
  const Scratch<T> work(2 * block);
  f.load(&x, 1, 2 * x_stride, n_, swap, work.data());
  f.store(first_->run(work.data(), work.data() + block), &y, 1, 2 * y_stride, n_, swap, factor);
}

template <typename T>
void LinePlan<T>::run_split(const T* x, int64_t x_stride, T* y, int64_t y_stride, bool swap, T factor) const {
  const FftKernels<T>& f = functions<T>();
  const int64_t width = f.width, row_blocks = (n1_ + width - 1) / width, column_blocks = (n2_ + width - 1) / width;
  const int64_t row = column_blocks * 2 * width;  // numbers in a row of the matrix between the two
  const Scratch<T> middle(row_blocks * width * row);
  std::fill(middle.data() + n1_ * row, middle.data() + row_blocks * width * row, T(0));

  parallel_for(column_blocks, 4.0 * n1_ + 50, [&](int64_t begin, int64_t end) {
    const size_t block = n1_ * 2 * width;
    const Scratch<T> work(2 * block);
    const T* lines[64];
    for (int64_t b = begin; b < end; ++b) {
      const int count = static_cast<int>(std::min(width, n2_ - b * width));
      for (int l = 0; l < count; ++l) lines[l] = x + (b * width + l) * 2 * x_stride;
      f.load(lines, count, n2_ * 2 * x_stride, n1_, swap, work.data());
      T* made = first_->run(work.data(), work.data() + block);
      const int64_t coarse = (n1_ + 15) / 16;
      f.multiply_lanes(made, n1_, &fine_[b * 16 * 2 * width], &coarse_[b * coarse * 2 * width]);
      for (int64_t i = 0; i < n1_; ++i)
        std::copy_n(made + i * 2 * width, 2 * width, middle.data() + i * row + b * 2 * width);
    }
  });

  parallel_for(row_blocks, 4.0 * n2_ + 50, [&](int64_t begin, int64_t end) {
    const size_t block = row * width;  // a whole number of tiles
    const Scratch<T> work(2 * block);
    T* lines[64];
    for (int64_t b = begin; b < end; ++b) {
      const int count = static_cast<int>(std::min(width, n1_ - b * width));
      for (int l = 0; l < count; ++l) lines[l] = y + (b * width + l) * 2 * y_stride;
      f.turn(middle.data() + b * width * row, row, n2_, work.data());
      const T* made = second_->run(work.data(), work.data() + block);
      f.store(made, lines, count, n1_ * 2 * y_stride, n2_, swap, factor);
    }
  });
}

template <typename T>
void LinePlan<T>::run_chirp(const T* x, int64_t x_stride, T* y, int64_t y_stride, bool swap, T factor) const {
  const int64_t size = static_cast<int64_t>(spectrum_.size() / 2);
  const Scratch<T> a(2 * size), b(2 * size);
  const int re = swap ? 1 : 0, im = 1 - re;
  for (int64_t k = 0; k < n_; ++k) {
    const T xr = x[k * 2 * x_stride + re], xi = x[k * 2 * x_stride + im], cr = chirp_[2 * k], ci = chirp_[2 * k + 1];
    a[2 * k] = xr * cr - xi * ci;
    a[2 * k + 1] = xr * ci + xi * cr;
  }
  std::fill(a.data() + 2 * n_, a.data() + 2 * size, T(0));
  inner_->run(a.data(), 1, b.data(), 1, false, T(1));
  for (int64_t k = 0; k < size; ++k) {  // conjugated, so that the same transform leads back
    const T br = b[2 * k], bi = b[2 * k + 1], sr = spectrum_[2 * k], si = spectrum_[2 * k + 1];
    b[2 * k] = br * sr - bi * si;
    b[2 * k + 1] = -(br * si + bi * sr);
  }
  inner_->run(b.data(), 1, a.data(), 1, false, factor);
  for (int64_t k = 0; k < n_; ++k) {
    const T ar = a[2 * k], ai = -a[2 * k + 1], cr = chirp_[2 * k], ci = chirp_[2 * k + 1];
    y[k * 2 * y_stride + re] = ar * cr - ai * ci;
    y[k * 2 * y_stride + im] = ar * ci + ai * cr;
  }
}

template <typename T>
std::shared_ptr<const LanePlan<T>> lane_plan(int64_t n) {
  static Cache<LanePlan<T>> cache;
  return cache.get(n, [&] { return std::make_shared<const LanePlan<T>>(n); });
}

template <typename T>
std::shared_ptr<const LinePlan<T>> line_plan(int64_t n) {
  static Cache<LinePlan<T>> cache;
  return cache.get(n, [&] { return std::make_shared<const LinePlan<T>>(n); });
}

template <typename T>
std::shared_ptr<const std::vector<T>> half_roots(int64_t h) {
  static Cache<std::vector<T>> cache;
  return cache.get(h, [&] {
    auto made = std::make_shared<std::vector<T>>(2 * (h + 1));
    for (int64_t k = 0; k <= h; ++k) root<T>(k, 2 * h, &(*made)[2 * k]);
    return made;
  });
}

template class LanePlan<float>;
template class LanePlan<double>;
template class LinePlan<float>;
template class LinePlan<double>;
template std::shared_ptr<const LanePlan<float>> lane_plan(int64_t);
template std::shared_ptr<const LanePlan<double>> lane_plan(int64_t);
template std::shared_ptr<const LinePlan<float>> line_plan(int64_t);
template std::shared_ptr<const LinePlan<double>> line_plan(int64_t);
template std::shared_ptr<const std::vector<float>> half_roots(int64_t);
template std::shared_ptr<const std::vector<double>> half_roots(int64_t);

}  // namespace tandem::library::fft
