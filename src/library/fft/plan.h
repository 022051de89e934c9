// Plans of Fourier transforms: factors and tables for one size, made once and shared by all threads.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "library/kernels/kernels.h"

namespace tandem::library::fft {

template <typename T>
const FftKernels<T>& functions();

// exp(-2 pi i k / n), correct to the last bit or so.
template <typename T>
void root(int64_t k, int64_t n, T* to);

// One transform in each lane of a block (kernels/fft.h). Sizes with a large prime factor become a convolution of a size
// without (Bluestein 1970).
template <typename T>
class LanePlan {
 public:
  explicit LanePlan(int64_t n);
  int64_t n() const { return n_; }
  int64_t room() const { return room_; }  // elements that a block needs
  T* run(T* x, T* y) const;               // the result is in one of them

 private:
  void add_passes(int64_t n);

  int64_t n_, room_;
  std::vector<FftPass<T>> passes_;
  std::vector<std::vector<T>> tables_;
  std::vector<T> chirp_, back_, spectrum_;  // empty unless it is a convolution
};

// One long transform, which uses all lanes and threads for itself: as a matrix, first along its columns, then along its
// rows (Bailey 1990).
template <typename T>
class LinePlan {
 public:
  explicit LinePlan(int64_t n);
  // Strides in complex elements. `swap`: real and imaginary parts change places in both, which makes it the inverse.
  void run(const T* x, int64_t x_stride, T* y, int64_t y_stride, bool swap, T factor) const;

 private:
  void run_small(const T* x, int64_t x_stride, T* y, int64_t y_stride, bool swap, T factor) const;
  void run_split(const T* x, int64_t x_stride, T* y, int64_t y_stride, bool swap, T factor) const;
  void run_chirp(const T* x, int64_t x_stride, T* y, int64_t y_stride, bool swap, T factor) const;

  int64_t n_, n1_ = 0, n2_ = 0;
  std::shared_ptr<const LanePlan<T>> first_, second_;  // of n1 and n2; first_ alone for small sizes
  std::vector<T> fine_, coarse_;                       // factors between them: blocks of 16, and of n1 / 16
  std::shared_ptr<const LinePlan<T>> inner_;           // of the convolution
  std::vector<T> chirp_, spectrum_;
};

template <typename T>
std::shared_ptr<const LanePlan<T>> lane_plan(int64_t n);
template <typename T>
std::shared_ptr<const LinePlan<T>> line_plan(int64_t n);
// exp(-pi i k / h) for k <= h, which real transforms of 2 h elements need.
template <typename T>
std::shared_ptr<const std::vector<T>> half_roots(int64_t h);

// Above this size of a block, lines are transformed one by one.
inline constexpr int64_t kLargestBlock = 512 << 10;  // bytes
// Up to this size, a single line goes through one lane.
inline constexpr int64_t kSmallLine = 64;

bool is_smooth(int64_t n);  // whether all prime factors have passes of their own

}  // namespace tandem::library::fft
