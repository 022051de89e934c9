#include "library/product_choice.h"

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "device/parallel.h"
#include "library/choices.h"
#include "library/kernels/kernels.h"
#include "library/matmul.h"
#include "library/measure.h"

namespace tandem::library {
namespace {

struct Preference {
  std::atomic<int> forced{-1};
  std::atomic<int> chosen{-1};  // twice the number of threads it was chosen for, and 1: our own
};
Preference preferences[3][kProductKinds];  // by set of kernels
thread_local int timed = -1;               // what time_products is at, whatever was chosen

int set_of_kernels() {
  return !std::strcmp(kernels().name, "avx512") ? 2 : !std::strcmp(kernels().name, "avx2") ? 1 : 0;
}

Preference& preference(ProductKind kind) {
  return preferences[set_of_kernels()][static_cast<int>(kind)];
}

std::string key_of(ProductKind kind) {
  return std::string("product/") + kernels().name + '/' + std::to_string(num_threads()) + '/' +
         std::to_string(static_cast<int>(kind));
}

// Of each kind, one that takes a fraction of a millisecond.
struct Typical {
  int64_t batch, m, n, k;
  bool a_transposed, b_transposed;
};
Typical typical(ProductKind kind) {
  switch (kind) {
    case ProductKind::kBatched:
      return {8, 256, 64, 256, true, false};
    case ProductKind::kTransposed:
      return {1, 512, 256, 256, true, false};
    case ProductKind::kFewRows:
      return {1, 64, 1024, 512, false, true};
    case ProductKind::kWide:
      return {1, 512, 1024, 128, false, true};
    case ProductKind::kColliding:
      return {1, 384, 512, 256, false, false};
    case ProductKind::kLarge:
      return {1, 1024, 384, 256, false, false};
    case ProductKind::kTall:
      return {1, 4096, 64, 256, false, false};
    default:
      return {1, 640, 256, 384, false, true};
  }
}

}  // namespace

ProductKind kind_of(const Batched& p) {
  const bool transposed = p.a.row == 1 && p.a.column > 1;
  if (p.batch.count(0, p.batch.ndim) > 1) {
    if (p.m < 128 || p.k > 512) return ProductKind::kNever;
    const bool collides =
        (transposed && p.a.column % 128 == 0 && p.n <= 512) || (p.b.column == 1 && p.b.row % 512 == 0 && p.m <= 512);
    return collides ? ProductKind::kBatched : ProductKind::kNever;
  }
  if (p.n < 64 || p.m < (transposed ? 8 : 16)) return ProductKind::kNever;
  constexpr int64_t kFew = 288, kMany = 1000, kTall = 4096;
  if (transposed) return ProductKind::kTransposed;
  if (p.m <= kFew) return ProductKind::kFewRows;
  if (p.b.row == 1 && p.n >= 1024 && p.k <= 512) return ProductKind::kWide;
  if (p.b.column == 1 && p.b.row % 512 == 0 && p.m <= 512) return ProductKind::kColliding;
  if (p.m >= kMany && p.n >= 384 && p.k >= 256 && p.k <= 2048) return ProductKind::kLarge;
  return p.m >= kTall && p.n < 1024 ? ProductKind::kTall : ProductKind::kOther;
}

// With vectors of 32 bytes or more our tiles keep up with oneDNN's, share work better between threads, and what follows
// a product can run on its blocks. (benchmarks/products.py, AVX2: 2048x2048 @ 2048x2048 takes oneDNN 6 % longer, the
// products of a training step of gpt-mini 2 to 3 %; others are quicker by up to 7 %. AVX-512 on an EPYC: the products
// of gpt-mini take it as long or 5 % longer.)
bool suggested(ProductKind kind) {
  return set_of_kernels() > 0 && kind != ProductKind::kOther;
}

bool prefers_own(ProductKind kind) {
  if (kind == ProductKind::kNever) return false;
  if (timed >= 0) return timed;
  Preference& found = preference(kind);
  if (const int forced = found.forced.load(std::memory_order_relaxed); forced >= 0) return forced;
  int own = found.chosen.load(std::memory_order_relaxed);
  if (own >> 1 != num_threads()) {
    own = 2 * num_threads() + (chosen(key_of(kind), [&] { return Choice{suggested(kind), false}; }).way == 1);
    found.chosen.store(own, std::memory_order_relaxed);
  }
  return own & 1;
}

std::optional<bool> chosen_own(ProductKind kind) {
  const std::optional<Choice> choice = already_chosen(key_of(kind));
  if (!choice) return {};
  return choice->way == 1;
}

void choose_products(ProductKind kind, bool own, bool again) {
  const Choice choice{own, true};
  if (again)
    choose_again(key_of(kind), choice);
  else
    chosen(key_of(kind), [&] { return choice; });
  preference(kind).chosen.store(-1);
}

void force_products(ProductKind kind, std::optional<bool> own) {
  preference(kind).forced.store(own ? *own : -1);
}

ProductTimes time_products(ProductKind kind, int runs) {
  const Typical t = typical(kind);
  std::vector<float> a(static_cast<size_t>(t.batch * t.m * t.k)), b(static_cast<size_t>(t.batch * t.k * t.n)),
      c(static_cast<size_t>(t.batch * t.m * t.n));
  const auto fill = [](std::vector<float>& x) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) * 0.25f - 1.9f;
  };
  fill(a), fill(b);
  View x, y, z;
  const auto view = [&](View& v, std::vector<float>& data, int64_t rows, int64_t columns, bool transposed) {
    v.data = reinterpret_cast<char*>(data.data());
    v.dtype = DType::Float32;
    v.ndim = 3;
    v.shape[0] = t.batch, v.shape[1] = rows, v.shape[2] = columns;
    v.strides[0] = rows * columns;
    v.strides[1] = transposed ? 1 : columns, v.strides[2] = transposed ? rows : 1;
  };
  view(x, a, t.m, t.k, t.a_transposed), view(y, b, t.k, t.n, t.b_transposed), view(z, c, t.m, t.n, false);
  const Clock clock = num_threads() == 1 ? Clock::kThread : Clock::kWall;  // Note [Measured beside other work]
  ProductTimes times;
  for (int run = 0; run <= runs; ++run)  // the first one is for caches, and for what oneDNN makes
    for (const int own : {1, 0}) {
      timed = own;
      const double started = seconds_of(clock);
      matmul(x, y, z, nullptr);
      if (run) (own ? times.own : times.onednn).push_back(seconds_of(clock) - started);
    }
  timed = -1;
  return times;
}

}  // namespace tandem::library
