// bincount (x) -> counts, ints [low]: counts[v] = how often low + v occurs in the integers x, for v below the size of
// counts.
#include <algorithm>
#include <vector>

#include "library/registry.h"
#include "library/scalar.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

void run_bincount(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 1 && call.num_ints == 1);
  const View &x = call.inputs[0], &out = call.outputs[0];
  TD_CHECK(out.dtype == DType::Int64 && out.ndim == 1 && out.is_contiguous(), "output of bincount");
  const uint64_t size = static_cast<uint64_t>(out.shape[0]), low = static_cast<uint64_t>(call.ints[0]);
  int64_t* counts = out.as<int64_t>();
  std::fill(counts, counts + size, 0);
  // Neighbours that are equal would wait for each other's sums, so few counters are kept several times over.
  constexpr uint64_t kFew = 4096;
  constexpr int64_t kCopies = 4;
  const int64_t apart = size <= kFew ? out.shape[0] : 0;
  std::vector<int64_t> more(apart * kCopies, 0);
  int64_t* to = apart ? more.data() : counts;
  const Loop<1> loop = make_loop<1>({&x}, 0, x.ndim, true);
  const int inner = std::max(loop.ndim - 1, 0);
  const int64_t length = loop.ndim ? loop.shape[inner] : 1, stride = loop.ndim ? loop.strides[0][inner] : 0;
  for_real("bincount", x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (std::is_integral_v<T>) {
      int64_t position[kMaxDims], offset[1] = {0};
      loop.locate(0, inner, position, offset);
      for (int64_t done = 0, total = x.numel(); done < total; done += length) {
        const T* row = x.as<T>() + offset[0];
        for (int64_t i = 0; i < length; ++i) {
          const uint64_t v = static_cast<uint64_t>(static_cast<int64_t>(row[i * stride])) - low;
          if (v >= size) fail(ErrorKind::Index, "bincount: a number is beyond the ", size, " that are counted");
          ++to[(i % kCopies) * apart + v];
        }
        loop.advance(inner, position, offset);
      }
    } else {
      fail(ErrorKind::Type, "bincount of ", name(x.dtype));
    }
  });
  for (int64_t copy = 0; apart && copy < kCopies; ++copy)
    for (int64_t v = 0; v < apart; ++v) counts[v] += more[copy * apart + v];
}

const Register bincount("bincount", &run_bincount);

}  // namespace
}  // namespace tandem::library
