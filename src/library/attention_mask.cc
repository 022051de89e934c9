#include "check.h"
#include "library/attention_impl.h"

namespace tandem::library {
namespace {

template <typename T, typename M>
void add_mask(const View& mask, int64_t offset, int64_t stride, int64_t n, T* row) {
  const M* from = mask.as<M>() + offset;
  for (int64_t k = 0; k < n; ++k) {
    if constexpr (std::is_same_v<M, uint8_t>)
      row[k] = from[k * stride] ? row[k] : -std::numeric_limits<T>::infinity();
    else
      row[k] += static_cast<T>(static_cast<Wide<M>>(from[k * stride]));
  }
}

}  // namespace

AttentionSizes::AttentionSizes(const Call& call, const View& q, const View& k, const View& v, int operands)
    : batch(q.shape[0]),
      heads(q.shape[1]),
      queries(q.shape[2]),
      keys(k.shape[2]),
      depth(q.shape[3]),
      value_depth(v.shape[3]),
      causal(call.ints[0] != 0),
      scale(call.floats[0]),
      key_heads(k.shape[1]) {
  TD_CHECK(call.num_ints == 2 || call.num_ints == 6, "integers of attention");
  TD_CHECK(heads == 0 || (key_heads > 0 && heads % key_heads == 0 && v.shape[1] == key_heads), "heads of attention");
  if (call.ints[1]) {
    mask = &call.inputs[operands++];
    const int64_t sizes[] = {batch, heads, queries, keys};
    for (int axis = 0; axis < 4; ++axis) {
      TD_CHECK(mask->shape[axis] == 1 || mask->shape[axis] == sizes[axis], "the mask of attention");
      mask_strides[axis] = mask->shape[axis] == 1 ? 0 : mask->strides[axis];
    }
  }
  if (call.num_ints == 6) {
    if (call.ints[2]) kinds = &call.inputs[operands++], kind_rows = call.ints[3], kind_columns = call.ints[4];
    const BlockKernel** const places[] = {&kernels.score, &kernels.masked, &kernels.drop, &kernels.slope};
    int next = 0;
    for (int bit = 0; bit < 4; ++bit)
      if (call.ints[5] >> bit & 1) *places[bit] = &call.blocks[next++];
    TD_CHECK(next == call.num_blocks, "kernels of attention");
  }
}

Seen AttentionSizes::seen(int64_t head, int64_t i, int64_t m, int64_t j, int64_t n) const {
  if (!kinds) return kernels.masked ? Seen::Some : Seen::All;
  const View& k = *kinds;
  const int64_t b = k.shape[0] == 1 ? 0 : head / heads, h = k.shape[1] == 1 ? 0 : head % heads;
  const uint8_t* from = k.as<uint8_t>() + b * k.strides[0] + h * k.strides[1];
  bool all = true, some = false;
  // What lies behind the last block is seen by nobody.
  for (int64_t row = i / kind_rows; row * kind_rows < i + m; ++row)
    for (int64_t column = j / kind_columns; column * kind_columns < j + n; ++column) {
      const bool inside = row < k.shape[2] && column < k.shape[3];
      const uint8_t kind = inside ? from[row * k.strides[2] + column * k.strides[3]] : 0;
      all &= kind == 2, some |= kind != 0;
    }
  return all ? Seen::All : some ? Seen::Some : Seen::Nothing;
}

template <typename T>
void mask_scores(const AttentionSizes& s, const ScoreBlock<T>& block, Seen seen, T* before) {
  if (!scales_first(s)) return;
  const int64_t b = block.head / s.heads, h = block.head % s.heads, n = block.n;
  for (int64_t r = 0; r < block.m; ++r) {
    T* row = block.data + r * block.pitch;
    row_kernels<T>().scale(row, n, static_cast<T>(s.scale));
    if (before) std::copy_n(row, n, before + r * block.pitch);
    if (s.mask) {
      const View& mask = *s.mask;
      const int64_t* strides = s.mask_strides;
      const int64_t offset = b * strides[0] + h * strides[1] + (block.i + r) * strides[2] + block.j * strides[3];
      switch (mask.dtype) {
        case DType::Bool:
          add_mask<T, uint8_t>(mask, offset, strides[3], n, row);
          break;
        case DType::Float16:
          add_mask<T, Half>(mask, offset, strides[3], n, row);
          break;
        case DType::BFloat16:
          add_mask<T, BFloat16>(mask, offset, strides[3], n, row);
          break;
        case DType::Float32:
          add_mask<T, float>(mask, offset, strides[3], n, row);
          break;
        case DType::Float64:
          add_mask<T, double>(mask, offset, strides[3], n, row);
          break;
        default:
          unsupported("the mask of attention", mask.dtype);
      }
    }
  }
  const BlockKernel* kernel = seen == Seen::Some && s.kernels.masked ? s.kernels.masked : s.kernels.score;
  if (kernel) block.call(s, *kernel);
}

template void mask_scores(const AttentionSizes&, const ScoreBlock<float>&, Seen, float*);
template void mask_scores(const AttentionSizes&, const ScoreBlock<double>&, Seen, double*);

}  // namespace tandem::library
