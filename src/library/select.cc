// select (x) -> int64 index, ints [axis, k, nan_wins]: where the k-th smallest element (from 0) along an axis is, of
// which the output has one element. NaN is greater than everything; of equal elements, the one that a stable sort would
// put there. nan_wins: the first NaN of a line that has one.
#include <cmath>
#include <memory>

#include "library/radix.h"
#include "library/registry.h"
#include "library/rows.h"
#include "library/sort_key.h"

namespace tandem::library {
namespace {

template <typename T>
int64_t position_of(const T* from, int64_t stride, int64_t n, int64_t k, bool nan_wins, Scratch<char>* memory) {
  using K = decltype(key_of(T()));
  if (!memory[0].data())
    for (int i = 0; i < 2; ++i) memory[i].resize((n + 1) * sizeof(K));
  K* keys = reinterpret_cast<K*>(memory[0].data());
  bool odd = false;
  for (int64_t i = 0; i < n; ++i) {
    const T value = from[i * stride];
    keys[i] = key_of(value);
    if constexpr (kIsFloat<T>) odd |= is_nan(value);
  }
  if (odd && nan_wins)
    for (int64_t i = 0;; ++i)
      if (is_nan(from[i * stride])) return i;
  auto [key, rank] = select_key(keys, reinterpret_cast<K*>(memory[1].data()), n, k);
  for (int64_t i = 0;; ++i)
    if (key_of(from[i * stride]) == key && rank-- == 0) return i;
}

void run_select(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 1 && call.num_ints == 3);
  const View &x = call.inputs[0], &index = call.outputs[0];
  const int axis = static_cast<int>(call.ints[0]);
  TD_CHECK(index.dtype == DType::Int64 && index.ndim == x.ndim && axis >= 0 && axis < x.ndim, "output of select");
  const int64_t n = x.shape[axis], k = call.ints[1], stride = x.strides[axis];
  if (index.numel() == 0) return;
  TD_CHECK(k >= 0 && k < n, "rank ", k, " among ", n);
  for_real("select", x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for_lines<2>({&x, &index}, axis, n * 4.0, [&] {
      return [&, memory = std::make_unique<Scratch<char>[]>(2)](const int64_t (&offset)[2]) {
        index.as<int64_t>()[offset[1]] =
            position_of(x.as<T>() + offset[0], stride, n, k, call.ints[2] != 0, memory.get());
      };
    });
  });
}

const Register select("select", &run_select);

}  // namespace
}  // namespace tandem::library
