// isin (x, values) -> bool of the shape of x: whether an element equals one of the vector of values. NaN equals
// nothing.
#include <bit>

#include "device/parallel.h"
#include "library/registry.h"
#include "library/scalar.h"
#include "library/scratch.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

// Elements that are equal have the same number, others not.
template <typename T>
uint64_t number_of(T x) {
  if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<uint64_t>(x == 0 ? 0.0 : x);
  else if constexpr (kIsFloat<T>)
    return std::bit_cast<uint32_t>(static_cast<float>(static_cast<Wide<T>>(x) == 0 ? 0.0f : static_cast<float>(x)));
  else
    return static_cast<uint64_t>(x);
}

// Open addressing, at most a quarter full.
class Table {
 public:
  explicit Table(int64_t count) {
    bits_ = 4;
    while ((int64_t{1} << bits_) < 4 * count) ++bits_;
    numbers_.resize(size_t{1} << bits_);
    taken_.resize(size_t{1} << bits_);
    std::fill(taken_.data(), taken_.data() + (size_t{1} << bits_), uint8_t{0});
  }
  void add(uint64_t number) {
    const size_t at = find(number);
    taken_[at] = 1;
    numbers_[at] = number;
  }
  bool has(uint64_t number) const { return taken_[find(number)]; }

 private:
  size_t find(uint64_t number) const {  // where it is, or would be
    size_t at = number * 0x9E3779B97F4A7C15u >> (64 - bits_);
    while (taken_[at] && numbers_[at] != number) at = (at + 1) & ((size_t{1} << bits_) - 1);
    return at;
  }
  int bits_;
  Scratch<uint64_t> numbers_;
  Scratch<uint8_t> taken_;
};

void run_isin(const Call& call) {
  TD_CHECK(call.num_inputs == 2 && call.num_outputs == 1 && call.outputs[0].dtype == DType::Bool &&
           call.inputs[0].dtype == call.inputs[1].dtype && call.inputs[1].ndim == 1);
  const View &x = call.inputs[0], &values = call.inputs[1], &out = call.outputs[0];
  if (out.numel() == 0) return;
  for_real("isin", x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    Table table(values.shape[0]);
    for (int64_t i = 0; i < values.shape[0]; ++i) {
      const T value = values.as<T>()[i * values.strides[0]];
      if (!is_nan(value)) table.add(number_of(value));
    }
    const auto loop = make_loop<2>({&out, &x}, 0, out.ndim, true);
    parallel_for(out.numel(), 2.0, [&](int64_t begin, int64_t end) {
      int64_t index[kMaxDims], offset[2];
      loop.locate(begin, loop.ndim, index, offset);
      for (int64_t i = begin; i < end; ++i) {
        out.as<bool>()[offset[0]] = table.has(number_of(x.as<T>()[offset[1]]));
        loop.advance(loop.ndim, index, offset);
      }
    });
  });
}

const Register isin("isin", &run_isin);

}  // namespace
}  // namespace tandem::library
