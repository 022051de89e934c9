// compress (x, mask) -> (count, *rest): the elements, or rows, of x where mask holds, in order. x has the mask's shape
// and then `rest`; count must be how many elements of the bool mask are set.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "device/parallel.h"
#include "library/registry.h"
#include "library/scalar.h"
#include "library/scratch.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

constexpr int64_t kPiece = 1 << 13;

View row_major(const View& view, Scratch<char>& memory) {
  if (view.is_contiguous()) return view;
  memory.resize(view.numel() * item_size(view.dtype));
  View copy = view;
  copy.data = memory.data();
  set_contiguous(copy);
  copy_elements(view, copy);
  return copy;
}

// Which of n are set; found without branches, which would be mispredicted half the time.
int64_t find_set(const uint8_t* mask, int64_t n, int32_t* found) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    found[count] = static_cast<int32_t>(i);
    count += mask[i] != 0;
  }
  return count;
}

void run_compress(const Call& call) {
  TD_CHECK(call.num_inputs == 2 && call.num_outputs == 1 && call.inputs[1].dtype == DType::Bool &&
           call.inputs[0].dtype == call.outputs[0].dtype && call.outputs[0].is_contiguous());
  Scratch<char> memory[2];
  const View x = row_major(call.inputs[0], memory[0]), mask = row_major(call.inputs[1], memory[1]);
  TD_CHECK(mask.ndim <= x.ndim && std::equal(mask.shape, mask.shape + mask.ndim, x.shape), "shapes of compress");
  const View& out = call.outputs[0];
  const int64_t total = mask.numel(), pieces = (total + kPiece - 1) / kPiece;
  if (total == 0) return;
  const uint8_t* set = mask.as<uint8_t>();
  std::vector<int64_t> first(pieces);
  parallel_for(pieces, kPiece * 0.1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t last = std::min(total, (p + 1) * kPiece);
      first[p] = last - p * kPiece - std::count(set + p * kPiece, set + last, uint8_t{0});
    }
  });
  int64_t sum = 0;
  for (int64_t& entry : first) sum += std::exchange(entry, sum);
  TD_CHECK(sum == out.shape[0], "compress found ", sum, " elements for ", out.shape[0], " places");
  const int64_t bytes = x.numel() / total * static_cast<int64_t>(item_size(x.dtype));
  parallel_for(pieces, kPiece * (1.0 + bytes * 0.1), [&](int64_t begin, int64_t end) {
    std::vector<int32_t> found(kPiece + 1);
    for (int64_t p = begin; p < end; ++p) {
      const int64_t count = find_set(set + p * kPiece, std::min(kPiece, total - p * kPiece), found.data());
      const char* from = x.data + p * kPiece * bytes;
      char* to = out.data + first[p] * bytes;
      const auto move = [&](auto type) {
        using T = typename decltype(type)::type;
        const T* source = reinterpret_cast<const T*>(from);
        for (int64_t i = 0; i < count; ++i) reinterpret_cast<T*>(to)[i] = source[found[i]];
      };
      if (bytes == static_cast<int64_t>(item_size(x.dtype)))
        for_size(bytes, move);
      else
        for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * bytes, from + found[i] * bytes, bytes);
    }
  });
}

const Register compress("compress", &run_compress);

}  // namespace
}  // namespace tandem::library
