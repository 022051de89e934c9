// Fourier transforms of several lines at once, one in each lane of a vector: every line takes the same steps with the
// same factors, so that all sizes and radices vectorise alike and nothing is shuffled but at the ends.
//
// A block holds n elements of kWidth lanes: element i is kWidth real parts, then kWidth imaginary parts.
#pragma once
#include <utility>

#include "library/kernels/kernels.h"
#include "library/kernels/vector.h"

namespace tandem::library::TANDEM_ISA {
namespace fft {

template <typename T>
using Vec = typename VectorOf<T, kWidth<T>>::type;

template <typename T>
struct Complex {
  Vec<T> re, im;
};

template <typename T>
inline Complex<T> operator+(Complex<T> a, Complex<T> b) {
  return {a.re + b.re, a.im + b.im};
}
template <typename T>
inline Complex<T> operator-(Complex<T> a, Complex<T> b) {
  return {a.re - b.re, a.im - b.im};
}
template <typename T>
inline Complex<T> scale(Complex<T> a, T s) {
  return {a.re * s, a.im * s};
}
template <typename T>
inline Complex<T> times_minus_i(Complex<T> a) {
  return {a.im, -a.re};
}
template <typename T>
inline Complex<T> times(Complex<T> a, T re, T im) {
  return {a.re * re - a.im * im, a.re * im + a.im * re};
}

template <typename T>
inline Complex<T> get(const T* block, int64_t i) {
  const T* at = block + i * 2 * kWidth<T>;
  return {load<T>(at), load<T>(at + kWidth<T>)};
}
template <typename T>
inline void put(T* block, int64_t i, Complex<T> v) {
  T* at = block + i * 2 * kWidth<T>;
  store<T>(at, v.re);
  store<T>(at + kWidth<T>, v.im);
}

// -- butterflies: the transform of R elements, in place

template <typename T>
inline void butterfly2(Complex<T>* a) {
  const Complex<T> x = a[0], y = a[1];
  a[0] = x + y;
  a[1] = x - y;
}

template <typename T>
inline void butterfly3(Complex<T>* a) {
  constexpr T s = T(0.86602540378443864676372317075293618);
  const Complex<T> sum = a[1] + a[2], difference = times_minus_i(scale(a[1] - a[2], s));
  const Complex<T> middle = a[0] + scale(sum, T(-0.5));
  a[0] = a[0] + sum;
  a[1] = middle + difference;
  a[2] = middle - difference;
}

template <typename T>
inline void butterfly4(Complex<T>* a) {
  const Complex<T> s02 = a[0] + a[2], d02 = a[0] - a[2], s13 = a[1] + a[3], d13 = times_minus_i(a[1] - a[3]);
  a[0] = s02 + s13;
  a[1] = d02 + d13;
  a[2] = s02 - s13;
  a[3] = d02 - d13;
}

template <typename T>
inline void butterfly5(Complex<T>* a) {
  constexpr T c1 = T(0.30901699437494742410229341718281906), c2 = T(-0.80901699437494742410229341718281906),
              s1 = T(0.95105651629515357211643933337938214), s2 = T(0.58778525229247312916870595463907277);
  const Complex<T> p1 = a[1] + a[4], m1 = a[1] - a[4], p2 = a[2] + a[3], m2 = a[2] - a[3];
  const Complex<T> u1 = a[0] + scale(p1, c1) + scale(p2, c2), u2 = a[0] + scale(p1, c2) + scale(p2, c1);
  const Complex<T> v1 = times_minus_i(scale(m1, s1) + scale(m2, s2)), v2 = times_minus_i(scale(m1, s2) - scale(m2, s1));
  a[0] = a[0] + p1 + p2;
  a[1] = u1 + v1;
  a[2] = u2 + v2;
  a[3] = u2 - v2;
  a[4] = u1 - v1;
}

template <typename T>
inline void butterfly8(Complex<T>* a) {
  constexpr T h = T(0.70710678118654752440084436210484904);
  Complex<T> even[4] = {a[0], a[2], a[4], a[6]}, odd[4] = {a[1], a[3], a[5], a[7]};
  butterfly4(even);
  butterfly4(odd);
  odd[1] = {(odd[1].re + odd[1].im) * h, (odd[1].im - odd[1].re) * h};
  odd[2] = times_minus_i(odd[2]);
  odd[3] = {(odd[3].im - odd[3].re) * h, (-odd[3].re - odd[3].im) * h};
  for (int i = 0; i < 4; ++i) {
    a[i] = even[i] + odd[i];
    a[i + 4] = even[i] - odd[i];
  }
}

template <typename T, int R>
inline void butterfly(Complex<T>* a) {
  if constexpr (R == 2) butterfly2(a);
  if constexpr (R == 3) butterfly3(a);
  if constexpr (R == 4) butterfly4(a);
  if constexpr (R == 5) butterfly5(a);
  if constexpr (R == 8) butterfly8(a);
}

// One pass of Stockham's algorithm: x[q + s (p + m r)] over r is transformed, turned by twiddles[p][r - 1], and put to
// y[q + s (R p + r)]. The results come out in order.
template <typename T, int R>
void pass(int64_t m, int64_t s, const T* twiddles, const T* x, T* y) {
  for (int64_t p = 0; p < m; ++p) {
    const T* w = twiddles + p * 2 * (R - 1);
    for (int64_t q = 0; q < s; ++q) {
      Complex<T> a[R];
      for (int r = 0; r < R; ++r) a[r] = get(x, q + s * (p + m * r));
      butterfly<T, R>(a);
      put(y, q + s * (R * p), a[0]);
      if (p == 0)
        for (int r = 1; r < R; ++r) put(y, q + s * r, a[r]);
      else
        for (int r = 1; r < R; ++r) put(y, q + s * (R * p + r), times(a[r], w[2 * r - 2], w[2 * r - 1]));
    }
  }
}

// Any odd radix, by its definition; `roots` holds cosine and sine of 2 pi i / radix.
template <typename T>
void pass_odd(int radix, int64_t m, int64_t s, const T* twiddles, const T* roots, const T* x, T* y) {
  constexpr int kMost = kLargestRadix / 2;
  const int half = radix / 2;
  for (int64_t p = 0; p < m; ++p) {
    const T* w = twiddles + p * 2 * (radix - 1);
    for (int64_t q = 0; q < s; ++q) {
      Complex<T> sum[kMost], difference[kMost];
      const Complex<T> first = get(x, q + s * p);
      Complex<T> total = first;
      for (int r = 1; r <= half; ++r) {
        const Complex<T> a = get(x, q + s * (p + m * r)), b = get(x, q + s * (p + m * (radix - r)));
        sum[r - 1] = a + b;
        difference[r - 1] = a - b;
        total = total + sum[r - 1];
      }
      put(y, q + s * radix * p, total);
      for (int k = 1; k <= half; ++k) {
        Complex<T> u = first, v = {};
        int angle = 0;
        for (int r = 0; r < half; ++r) {
          angle += k;
          if (angle >= radix) angle -= radix;
          u = u + scale(sum[r], roots[2 * angle]);
          v = v + scale(difference[r], roots[2 * angle + 1]);
        }
        v = times_minus_i(v);
        const Complex<T> low = u + v, high = u - v;
        put(y, q + s * (radix * p + k), times(low, w[2 * k - 2], w[2 * k - 1]));
        put(y, q + s * (radix * p + radix - k), times(high, w[2 * (radix - k) - 2], w[2 * (radix - k) - 1]));
      }
    }
  }
}

template <typename T>
T* passes(const FftPass<T>* list, int count, T* x, T* y) {
  for (int i = 0; i < count; ++i) {
    const FftPass<T>& at = list[i];
    switch (at.radix) {
      case 2:
        pass<T, 2>(at.m, at.s, at.twiddles, x, y);
        break;
      case 3:
        pass<T, 3>(at.m, at.s, at.twiddles, x, y);
        break;
      case 4:
        pass<T, 4>(at.m, at.s, at.twiddles, x, y);
        break;
      case 5:
        pass<T, 5>(at.m, at.s, at.twiddles, x, y);
        break;
      case 8:
        pass<T, 8>(at.m, at.s, at.twiddles, x, y);
        break;
      default:
        pass_odd<T>(static_cast<int>(at.radix), at.m, at.s, at.twiddles, at.roots, x, y);
    }
    T* const other = x;
    x = y;
    y = other;
  }
  return x;
}

// -- ends: lines of memory to lanes and back

template <int... I>
struct Lanes {};
template <typename List>
struct LanesOf;
template <int... I>
struct LanesOf<std::integer_sequence<int, I...>> {
  using type = Lanes<I...>;
};
template <typename T>
using AllLanes = typename LanesOf<std::make_integer_sequence<int, kWidth<T>>>::type;

template <typename T, typename Choice, int... I>
inline Vec<T> shuffle(Vec<T> a, Vec<T> b, Choice,
                      Lanes<I...>) {  // lane i is lane Choice::at(i) of a and b side by side
  return __builtin_shufflevector(a, b, Choice::at(I)...);
}

template <int W>
struct Even {
  static constexpr int at(int i) { return 2 * i; }
};
template <int W>
struct Odd {
  static constexpr int at(int i) { return 2 * i + 1; }
};
template <int W>
struct LowPairs {
  static constexpr int at(int i) { return i / 2 + (i % 2) * W; }
};
template <int W>
struct HighPairs {
  static constexpr int at(int i) { return W / 2 + i / 2 + (i % 2) * W; }
};
template <int W, int S>
struct Low {
  static constexpr int at(int i) { return i & S ? i - S + W : i; }
};
template <int W, int S>
struct High {
  static constexpr int at(int i) { return i & S ? i + W : i + S; }
};

template <typename T, template <int> class Choice>
inline Vec<T> choose(Vec<T> a, Vec<T> b) {
  return shuffle<T>(a, b, Choice<kWidth<T>>{}, AllLanes<T>{});
}

template <typename T, int S>
inline void transpose_step(Vec<T>* v) {
  for (int i = 0; i < kWidth<T>; ++i) {
    if (i & S) continue;
    const Vec<T> a = v[i], b = v[i + S];
    v[i] = shuffle<T>(a, b, Low<kWidth<T>, S>{}, AllLanes<T>{});
    v[i + S] = shuffle<T>(a, b, High<kWidth<T>, S>{}, AllLanes<T>{});
  }
}

template <typename T>
inline void transpose(Vec<T>* v) {  // kWidth vectors
  transpose_step<T, 1>(v);
  if constexpr (kWidth<T> > 2) transpose_step<T, 2>(v);
  if constexpr (kWidth<T> > 4) transpose_step<T, 4>(v);
  if constexpr (kWidth<T> > 8) transpose_step<T, 8>(v);
}

template <typename T>
bool side_by_side(const T* const* lines, int count, int64_t step) {
  if (count < kWidth<T>) return false;
  for (int l = 1; l < kWidth<T>; ++l)
    if (lines[l] - lines[0] != l * step) return false;
  return true;
}

// Complex elements lines[l][stride i], re and im swapped if asked (which makes a transform the inverse one). Lanes from
// `count` on become zero.
template <typename T>
void load_lines(const T* const* lines, int count, int64_t stride, int64_t n, bool swap, T* block) {
  constexpr int W = kWidth<T>;
  T *re = block + (swap ? W : 0), *im = block + (swap ? 0 : W);
  if (side_by_side(lines, count, 2)) {
    for (int64_t i = 0; i < n; ++i) {
      const T* at = lines[0] + i * stride;
      const Vec<T> a = load<T>(at), b = load<T>(at + W);
      store<T>(re + i * 2 * W, choose<T, Even>(a, b));
      store<T>(im + i * 2 * W, choose<T, Odd>(a, b));
    }
    return;
  }
  int64_t i = 0;
  if (stride == 2 && count == W) {
    for (; i + W <= n; i += W) {
      Vec<T> r[W], m[W];
      for (int l = 0; l < W; ++l) {
        const Vec<T> a = load<T>(lines[l] + 2 * i), b = load<T>(lines[l] + 2 * i + W);
        r[l] = choose<T, Even>(a, b);
        m[l] = choose<T, Odd>(a, b);
      }
      transpose<T>(r);
      transpose<T>(m);
      for (int l = 0; l < W; ++l) {
        store<T>(re + (i + l) * 2 * W, r[l]);
        store<T>(im + (i + l) * 2 * W, m[l]);
      }
    }
  }
  for (; i < n; ++i)
    for (int l = 0; l < W; ++l) {
      re[i * 2 * W + l] = l < count ? lines[l][i * stride] : T(0);
      im[i * 2 * W + l] = l < count ? lines[l][i * stride + 1] : T(0);
    }
}

template <typename T>
void store_lines(const T* block, T* const* lines, int count, int64_t stride, int64_t n, bool swap, T factor) {
  constexpr int W = kWidth<T>;
  const T *re = block + (swap ? W : 0), *im = block + (swap ? 0 : W);
  if (side_by_side<T>(lines, count, 2)) {
    for (int64_t i = 0; i < n; ++i) {
      const Vec<T> r = load<T>(re + i * 2 * W) * factor, m = load<T>(im + i * 2 * W) * factor;
      T* at = lines[0] + i * stride;
      store<T>(at, choose<T, LowPairs>(r, m));
      store<T>(at + W, choose<T, HighPairs>(r, m));
    }
    return;
  }
  int64_t i = 0;
  if (stride == 2 && count == W) {
    for (; i + W <= n; i += W) {
      Vec<T> r[W], m[W];
      for (int l = 0; l < W; ++l) {
        r[l] = load<T>(re + (i + l) * 2 * W) * factor;
        m[l] = load<T>(im + (i + l) * 2 * W) * factor;
      }
      transpose<T>(r);
      transpose<T>(m);
      for (int l = 0; l < W; ++l) {
        store<T>(lines[l] + 2 * i, choose<T, LowPairs>(r[l], m[l]));
        store<T>(lines[l] + 2 * i + W, choose<T, HighPairs>(r[l], m[l]));
      }
    }
  }
  for (; i < n; ++i)
    for (int l = 0; l < count; ++l) {
      lines[l][i * stride] = re[i * 2 * W + l] * factor;
      lines[l][i * stride + 1] = im[i * 2 * W + l] * factor;
    }
}

// Real elements lines[l][stride i] into the real parts (part 0) or the imaginary parts (part 1) of a block.
template <typename T>
void load_real(const T* const* lines, int count, int64_t stride, int64_t n, int part, T* block) {
  constexpr int W = kWidth<T>;
  T* to = block + part * W;
  int64_t i = 0;
  if (side_by_side(lines, count, 1)) {
    for (; i < n; ++i) store<T>(to + i * 2 * W, load<T>(lines[0] + i * stride));
  } else if (stride == 1 && count == W) {
    for (; i + W <= n; i += W) {
      Vec<T> r[W];
      for (int l = 0; l < W; ++l) r[l] = load<T>(lines[l] + i);
      transpose<T>(r);
      for (int l = 0; l < W; ++l) store<T>(to + (i + l) * 2 * W, r[l]);
    }
  }
  for (; i < n; ++i)
    for (int l = 0; l < W; ++l) to[i * 2 * W + l] = l < count ? lines[l][i * stride] : T(0);
}

template <typename T>
void store_real(const T* block, int part, T* const* lines, int count, int64_t stride, int64_t n, T factor) {
  constexpr int W = kWidth<T>;
  const T* from = block + part * W;
  int64_t i = 0;
  if (side_by_side<T>(lines, count, 1)) {
    for (; i < n; ++i) store<T>(lines[0] + i * stride, load<T>(from + i * 2 * W) * factor);
  } else if (stride == 1 && count == W) {
    for (; i + W <= n; i += W) {
      Vec<T> r[W];
      for (int l = 0; l < W; ++l) r[l] = load<T>(from + (i + l) * 2 * W) * factor;
      transpose<T>(r);
      for (int l = 0; l < W; ++l) store<T>(lines[l] + i, r[l]);
    }
  }
  for (; i < n; ++i)
    for (int l = 0; l < count; ++l) lines[l][i * stride] = from[i * 2 * W + l] * factor;
}

// -- factors between transforms

// Element i by the complex number factors[i]; then conjugated, if asked.
template <typename T>
void multiply(T* block, int64_t n, const T* factors, bool conjugate) {
  const T sign = conjugate ? T(-1) : T(1);
  for (int64_t i = 0; i < n; ++i) {
    const Complex<T> product = times(get(block, i), factors[2 * i], factors[2 * i + 1]);
    put(block, i, {product.re, product.im * sign});
  }
}

// Element i = 16 a + b, lane by lane, by fine[b] * coarse[a]: two blocks.
template <typename T>
void multiply_lanes(T* block, int64_t n, const T* fine, const T* coarse) {
  for (int64_t i = 0; i < n; ++i) {
    const Complex<T> x = get(block, i), f = get(fine, i % 16), c = get(coarse, i / 16);
    const Complex<T> w = {f.re * c.re - f.im * c.im, f.re * c.im + f.im * c.re};
    put(block, i, {x.re * w.re - x.im * w.im, x.re * w.im + x.im * w.re});
  }
}

// From the transform of h complex elements, made of the even and odd elements of 2 h real ones, to the first h + 1
// elements of the transform of the latter: in place, in a block of h + 1. roots[k] = exp(-pi i k / h). With `doubled`,
// elements that stand for two (all but the first and the last) count twice.
template <typename T>
void split_real(T* block, int64_t h, const T* roots, bool doubled) {
  const Complex<T> z = get(block, 0);
  put(block, 0, {z.re + z.im, Vec<T>{}});
  put(block, h, {z.re - z.im, Vec<T>{}});
  const T half = doubled ? T(1) : T(0.5);
  for (int64_t k = 1; k <= h - k; ++k) {
    const Complex<T> a = get(block, k), b = get(block, h - k);
    const Complex<T> even = {(a.re + b.re) * half, (a.im - b.im) * half};
    const Complex<T> odd = {(a.im + b.im) * half, (b.re - a.re) * half};
    const Complex<T> turned = times(odd, roots[2 * k], roots[2 * k + 1]);
    put(block, k, even + turned);
    put(block, h - k, {even.re - turned.re, turned.im - even.im});
  }
}

// The way back: to h complex elements with real and imaginary parts swapped, whose transform has the 2 h real results
// as imaginary (even ones) and real parts. With `halved`, elements that stand for two count half.
template <typename T>
void join_real(T* block, int64_t h, const T* roots, bool halved) {
  const Vec<T> first = get(block, 0).re, last = get(block, h).re;
  put(block, 0, {first - last, first + last});
  const T half = halved ? T(0.5) : T(1);
  for (int64_t k = 1; k <= h - k; ++k) {
    const Complex<T> a = get(block, k), b = get(block, h - k);
    const Complex<T> even = {(a.re + b.re) * half, (a.im - b.im) * half};
    const Complex<T> turned = {(a.re - b.re) * half, (a.im + b.im) * half};
    const Complex<T> odd = times(turned, roots[2 * k], -roots[2 * k + 1]);
    put(block, k, {even.im + odd.re, even.re - odd.im});
    put(block, h - k, {odd.re - even.im, even.re + odd.im});
  }
}

// kWidth blocks of one row each (row r at from + r * step: element i is lanes i of chunk i / kWidth) become one block
// whose lanes are the rows: how the middle of a long transform changes its direction.
template <typename T>
void turn(const T* from, int64_t step, int64_t n, T* block) {
  constexpr int W = kWidth<T>;
  for (int64_t i = 0; i < n; i += W) {
    Vec<T> r[W], m[W];
    for (int l = 0; l < W; ++l) {
      r[l] = load<T>(from + l * step + 2 * i);
      m[l] = load<T>(from + l * step + 2 * i + W);
    }
    transpose<T>(r);
    transpose<T>(m);
    for (int l = 0; l < W; ++l) put<T>(block, i + l, {r[l], m[l]});
  }
}

}  // namespace fft

template <typename T>
constexpr FftKernels<T> fft_kernels() {
  return {kWidth<T>,           &fft::passes<T>,     &fft::load_lines<T>, &fft::store_lines<T>,
          &fft::load_real<T>,  &fft::store_real<T>, &fft::multiply<T>,   &fft::multiply_lanes<T>,
          &fft::split_real<T>, &fft::join_real<T>,  &fft::turn<T>};
}

}  // namespace tandem::library::TANDEM_ISA
