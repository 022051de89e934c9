// fft (x) -> y complex, ints [norm, forward, axes...]: along each of the axes; x may be real.
// rfft (x real) -> y complex, ints [norm, axis, doubled]: the first n / 2 + 1 elements along axis; with `doubled`,
// those that stand
//   for two (all but the first, and the last of an even n) count twice.
// irfft (x complex) -> y real, ints [norm, axis, halved]: inverse, for as many elements as y has; with `halved`,
// elements of x
//   that stand for two count half. Imaginary parts that a real result cannot have are not read.
//
// norm: 0 nothing, 1 divides by the number of elements transformed, 2 by its root. doubled and halved are what the
// gradients of irfft and rfft are made of.
#include <cmath>

#include "check.h"
#include "library/fft/lines.h"
#include "library/fft/plan.h"
#include "library/registry.h"
#include "library/scratch.h"

namespace tandem::library::fft {
namespace {

double norm_factor(int64_t norm, double n) {
  return norm == 0 || n == 0 ? 1.0 : norm == 1 ? 1.0 / n : 1.0 / std::sqrt(n);
}

bool is_single(DType dtype) {
  return dtype == DType::Float32 || dtype == DType::Complex64;
}

// Whether lines of this size go in groups through lanes, rather than one by one.
template <typename T>
bool in_lanes(const LanePlan<T>& plan, int64_t lines) {
  const int width = functions<T>().width;
  if (plan.n() <= kSmallLine) return true;
  return plan.room() * 2 * width * static_cast<int64_t>(sizeof(T)) <= kLargestBlock && lines * 2 > width;
}

double cost_of(int64_t n) {
  return 8.0 * n * std::log2(n + 2.0);  // of a group, in nanoseconds
}

// Working memory for groups of lines.
template <typename T>
struct Blocks {
  explicit Blocks(int64_t room) : size(room * 2 * functions<T>().width), memory(2 * size) {}
  T* first() const { return memory.data(); }
  T* second() const { return memory.data() + size; }
  size_t size;
  Scratch<T> memory;
};

template <typename T>
struct Lines {  // addresses of a group, in numbers
  Lines(const View& v, const int64_t* offsets, int count, int numbers) {
    for (int l = 0; l < count; ++l) at[l] = v.as<T>() + offsets[l] * numbers;
  }
  T* at[64];
};

// -- complex to complex

template <typename T>
void transform_axis(const View& x, const View& y, int axis, bool forward, T factor) {
  const FftKernels<T>& f = functions<T>();
  const int64_t n = x.shape[axis], lines = x.numel() / n;
  const bool real = !is_complex(x.dtype);
  const int numbers = real ? 1 : 2;
  const int64_t x_stride = x.strides[axis], y_stride = y.strides[axis];
  const auto plan = lane_plan<T>(n);
  if (in_lanes(*plan, lines)) {
    for_groups(x, y, axis, f.width, cost_of(n), true, [&] {
      return [&, work = Blocks<T>(plan->room())](const int64_t* from, const int64_t* to, int count) {
        const Lines<T> in(x, from, count, numbers), out(y, to, count, 2);
        if (real) {
          f.load_real(in.at, count, x_stride, n, forward ? 0 : 1, work.first());
          for (int64_t i = 0; i < n; ++i)
            std::fill_n(work.first() + (2 * i + (forward ? 1 : 0)) * f.width, f.width, T(0));
        } else {
          f.load(in.at, count, 2 * x_stride, n, !forward, work.first());
        }
        f.store(plan->run(work.first(), work.second()), out.at, count, 2 * y_stride, n, !forward, factor);
      };
    });
    return;
  }
  const auto line = line_plan<T>(n);
  const bool parallel = lines >= num_threads();
  for_groups(x, y, axis, 1, cost_of(n), parallel, [&] {
    return [&, wide = Scratch<T>(real ? 2 * n : 0)](const int64_t* from, const int64_t* to, int) {
      const T* in = x.as<T>() + *from * numbers;
      T* out = y.as<T>() + *to * 2;
      if (!real) return line->run(in, x_stride, out, y_stride, !forward, factor);
      for (int64_t i = 0; i < n; ++i) {
        wide[2 * i] = in[i * x_stride];
        wide[2 * i + 1] = T(0);
      }
      line->run(wide.data(), 1, out, y_stride, !forward, factor);
    };
  });
}

template <typename T>
void transform(const Call& call) {
  const View &x = call.inputs[0], &y = call.outputs[0];
  const int axes = call.num_ints - 2;
  double n = 1;
  for (int i = 0; i < axes; ++i) n *= static_cast<double>(x.shape[call.ints[2 + i]]);
  const View* from = &x;
  // The last axis first: it reads and writes whole lines.
  for (int i = axes - 1; i >= 0; --i) {
    transform_axis<T>(*from, y, static_cast<int>(call.ints[2 + i]), call.ints[1] != 0,
                      i == 0 ? static_cast<T>(norm_factor(call.ints[0], n)) : T(1));
    from = &y;
  }
}

void run_fft(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 1 && call.num_ints >= 3);
  const View &x = call.inputs[0], &y = call.outputs[0];
  TD_CHECK(is_complex(y.dtype) && is_single(x.dtype) == is_single(y.dtype), "dtypes of fft");
  for (int i = 2; i < call.num_ints; ++i) TD_CHECK(call.ints[i] >= 0 && call.ints[i] < x.ndim, "axes of fft");
  if (y.numel() == 0) return;
  is_single(y.dtype) ? transform<float>(call) : transform<double>(call);
}

// -- real to complex

template <typename T>
void scale_inner(T* block, int64_t n, int64_t half, int64_t size, T factor) {  // elements that stand for two
  for (int64_t k = 1; k < (n % 2 ? half + 1 : half); ++k)
    for (int64_t i = 0; i < size; ++i) block[k * size + i] *= factor;
}

template <typename T>
void forward_real(const View& x, const View& y, int axis, bool doubled, T factor) {
  const FftKernels<T>& f = functions<T>();
  const int64_t n = x.shape[axis], half = n / 2, lines = x.numel() / n, kept = half + 1;
  const int64_t x_stride = x.strides[axis], y_stride = y.strides[axis];
  const bool even = n % 2 == 0;
  // An even number of real elements is half as many complex ones.
  const auto plan = lane_plan<T>(even ? half : n);
  const auto roots = even ? half_roots<T>(half) : nullptr;
  if (in_lanes(*plan, lines)) {
    for_groups(x, y, axis, f.width, cost_of(plan->n()), true, [&] {
      return [&, work = Blocks<T>(plan->room() + 1)](const int64_t* from, const int64_t* to, int count) {
        const Lines<T> in(x, from, count, 1), out(y, to, count, 2);
        T* block = work.first();
        if (!even) {
          f.load_real(in.at, count, x_stride, n, 0, block);
          for (int64_t i = 0; i < n; ++i) std::fill_n(block + (2 * i + 1) * f.width, f.width, T(0));
        } else if (x_stride == 1) {
          f.load(in.at, count, 2, half, false, block);
        } else {
          Lines<T> next = in;
          for (int l = 0; l < count; ++l) next.at[l] += x_stride;
          f.load_real(in.at, count, 2 * x_stride, half, 0, block);
          f.load_real(next.at, count, 2 * x_stride, half, 1, block);
        }
        block = plan->run(block, work.second());
        if (even)
          f.split_real(block, half, roots->data(), doubled);
        else if (doubled)
          scale_inner(block, n, half, 2 * f.width, T(2));
        f.store(block, out.at, count, 2 * y_stride, kept, false, factor);
      };
    });
    return;
  }
  const auto line = line_plan<T>(plan->n());
  for_groups(x, y, axis, 1, cost_of(n), lines >= num_threads(), [&] {
    return [&, packed = Scratch<T>(even ? n : 2 * n), made = Scratch<T>(even ? n : 2 * n)](const int64_t* from,
                                                                                           const int64_t* to, int) {
      const T* in = x.as<T>() + *from;
      T* out = y.as<T>() + *to * 2;
      const auto put = [&](int64_t k, T re, T im) {
        out[k * 2 * y_stride] = re * factor;
        out[k * 2 * y_stride + 1] = im * factor;
      };
      if (!even) {
        for (int64_t i = 0; i < n; ++i) {
          packed[2 * i] = in[i * x_stride];
          packed[2 * i + 1] = T(0);
        }
        line->run(packed.data(), 1, made.data(), 1, false, T(1));
        const T twice = doubled ? T(2) : T(1);
        put(0, made[0], T(0));
        for (int64_t k = 1; k <= half; ++k) put(k, made[2 * k] * twice, made[2 * k + 1] * twice);
        return;
      }
      if (x_stride != 1) {
        for (int64_t i = 0; i < n; ++i) packed[i] = in[i * x_stride];
        in = packed.data();
      }
      line->run(in, 1, made.data(), 1, false, T(1));
      // As split_real of kernels/fft.h has it.
      const T scale = doubled ? T(1) : T(0.5);
      const T* root = roots->data();
      put(0, made[0] + made[1], T(0));
      put(half, made[0] - made[1], T(0));
      for (int64_t k = 1; k <= half - k; ++k) {
        const T ar = made[2 * k], ai = made[2 * k + 1], br = made[2 * (half - k)], bi = made[2 * (half - k) + 1];
        const T er = (ar + br) * scale, ei = (ai - bi) * scale, or_ = (ai + bi) * scale, oi = (br - ar) * scale;
        const T tr = or_ * root[2 * k] - oi * root[2 * k + 1], ti = or_ * root[2 * k + 1] + oi * root[2 * k];
        put(k, er + tr, ei + ti);
        put(half - k, er - tr, ti - ei);
      }
    };
  });
}

void run_rfft(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 1 && call.num_ints == 3);
  const View &x = call.inputs[0], &y = call.outputs[0];
  const int axis = static_cast<int>(call.ints[1]);
  TD_CHECK(is_floating(x.dtype) && is_complex(y.dtype) && is_single(x.dtype) == is_single(y.dtype), "dtypes of rfft");
  TD_CHECK(axis >= 0 && axis < x.ndim && y.shape[axis] == x.shape[axis] / 2 + 1, "sizes of rfft");
  if (x.numel() == 0) return fill_zero(y);
  const double factor = norm_factor(call.ints[0], static_cast<double>(x.shape[axis]));
  if (is_single(x.dtype))
    forward_real<float>(x, y, axis, call.ints[2] != 0, static_cast<float>(factor));
  else
    forward_real<double>(x, y, axis, call.ints[2] != 0, factor);
}

// -- complex to real

template <typename T>
void backward_real(const View& x, const View& y, int axis, bool halved, T factor) {
  const FftKernels<T>& f = functions<T>();
  const int64_t n = y.shape[axis], half = n / 2, lines = y.numel() / n, given = half + 1;
  const int64_t x_stride = x.strides[axis], y_stride = y.strides[axis], width = f.width;
  const bool even = n % 2 == 0;
  const auto plan = lane_plan<T>(even ? half : n);
  const auto roots = even ? half_roots<T>(half) : nullptr;
  const T scale = halved ? T(0.5) : T(1);
  if (in_lanes(*plan, lines)) {
    for_groups(x, y, axis, f.width, cost_of(plan->n()), true, [&] {
      return [&, work = Blocks<T>(plan->room() + 1)](const int64_t* from, const int64_t* to, int count) {
        const Lines<T> in(x, from, count, 2), out(y, to, count, 1);
        T* block = work.first();
        f.load(in.at, count, 2 * x_stride, given, !even, block);
        if (even) {
          f.join_real(block, half, roots->data(), halved);
        } else {
          // The other half is the conjugate, in reverse. Real and imaginary parts are swapped, as for every inverse.
          std::fill_n(block, width, T(0));
          for (int64_t k = 1; k <= half; ++k) {
            T *a = block + k * 2 * width, *b = block + (n - k) * 2 * width;
            for (int64_t l = 0; l < width; ++l) {
              a[l] *= scale;
              a[l + width] *= scale;
              b[l] = -a[l];
              b[l + width] = a[l + width];
            }
          }
        }
        block = plan->run(block, work.second());
        if (!even) {
          f.store_real(block, 1, out.at, count, y_stride, n, factor);
        } else if (y_stride == 1) {
          f.store(block, out.at, count, 2, half, true, factor);
        } else {
          Lines<T> next = out;
          for (int l = 0; l < count; ++l) next.at[l] += y_stride;
          f.store_real(block, 1, out.at, count, 2 * y_stride, half, factor);
          f.store_real(block, 0, next.at, count, 2 * y_stride, half, factor);
        }
      };
    });
    return;
  }
  const auto line = line_plan<T>(plan->n());
  for_groups(x, y, axis, 1, cost_of(n), lines >= num_threads(), [&] {
    return [&, packed = Scratch<T>(even ? n : 2 * n), made = Scratch<T>(even ? n : 2 * n)](const int64_t* from,
                                                                                           const int64_t* to, int) {
      const T* in = x.as<T>() + *from * 2;
      T* out = y.as<T>() + *to;
      const auto re = [&](int64_t k) { return in[k * 2 * x_stride]; };
      const auto im = [&](int64_t k) { return in[k * 2 * x_stride + 1]; };
      if (!even) {
        packed[0] = re(0);
        packed[1] = T(0);
        for (int64_t k = 1; k <= half; ++k) {
          packed[2 * k] = packed[2 * (n - k)] = re(k) * scale;
          packed[2 * k + 1] = im(k) * scale;
          packed[2 * (n - k) + 1] = -im(k) * scale;
        }
        line->run(packed.data(), 1, made.data(), 1, true, factor);
        for (int64_t i = 0; i < n; ++i) out[i * y_stride] = made[2 * i];
        return;
      }
      const T* root = roots->data();
      packed[0] = re(0) + re(half);
      packed[1] = re(0) - re(half);
      for (int64_t k = 1; k <= half - k; ++k) {
        const T ar = re(k), ai = im(k), br = re(half - k), bi = im(half - k);
        const T er = (ar + br) * scale, ei = (ai - bi) * scale, tr = (ar - br) * scale, ti = (ai + bi) * scale;
        const T or_ = tr * root[2 * k] + ti * root[2 * k + 1], oi = ti * root[2 * k] - tr * root[2 * k + 1];
        packed[2 * k] = er - oi;
        packed[2 * k + 1] = ei + or_;
        packed[2 * (half - k)] = er + oi;
        packed[2 * (half - k) + 1] = or_ - ei;
      }
      T* target = y_stride == 1 ? out : made.data();
      line->run(packed.data(), 1, target, 1, true, factor);
      if (y_stride != 1)
        for (int64_t i = 0; i < n; ++i) out[i * y_stride] = made[i];
    };
  });
}

void run_irfft(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 1 && call.num_ints == 3);
  const View &x = call.inputs[0], &y = call.outputs[0];
  const int axis = static_cast<int>(call.ints[1]);
  TD_CHECK(is_complex(x.dtype) && is_floating(y.dtype) && is_single(x.dtype) == is_single(y.dtype), "dtypes of irfft");
  TD_CHECK(axis >= 0 && axis < x.ndim && x.shape[axis] == y.shape[axis] / 2 + 1, "sizes of irfft");
  if (y.numel() == 0) return;
  const double factor = norm_factor(call.ints[0], static_cast<double>(y.shape[axis]));
  if (is_single(y.dtype))
    backward_real<float>(x, y, axis, call.ints[2] != 0, static_cast<float>(factor));
  else
    backward_real<double>(x, y, axis, call.ints[2] != 0, factor);
}

const Register fft("fft", &run_fft);
const Register rfft("rfft", &run_rfft);
const Register irfft("irfft", &run_irfft);

}  // namespace
}  // namespace tandem::library::fft
