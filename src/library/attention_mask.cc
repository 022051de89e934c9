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

template <typename T>
void mask_scores(const AttentionSizes& s, int64_t head, int64_t i, int64_t m, int64_t j, int64_t n, T* scores,
                 int64_t pitch) {
  if (!scales_first(s)) return;
  const int64_t b = head / s.heads, h = head % s.heads;
  for (int64_t r = 0; r < m; ++r) {
    T* row = scores + r * pitch;
    row_kernels<T>().scale(row, n, static_cast<T>(s.scale));
    if (s.mask) {
      const View& mask = *s.mask;
      const int64_t offset =
          b * mask.strides[0] + h * mask.strides[1] + (i + r) * mask.strides[2] + j * mask.strides[3];
      switch (mask.dtype) {
        case DType::Bool:
          add_mask<T, uint8_t>(mask, offset, mask.strides[3], n, row);
          break;
        case DType::Float16:
          add_mask<T, Half>(mask, offset, mask.strides[3], n, row);
          break;
        case DType::BFloat16:
          add_mask<T, BFloat16>(mask, offset, mask.strides[3], n, row);
          break;
        case DType::Float32:
          add_mask<T, float>(mask, offset, mask.strides[3], n, row);
          break;
        case DType::Float64:
          add_mask<T, double>(mask, offset, mask.strides[3], n, row);
          break;
        default:
          unsupported("the mask of attention", mask.dtype);
      }
    }
  }
}

template void mask_scores(const AttentionSizes&, int64_t, int64_t, int64_t, int64_t, int64_t, float*, int64_t);
template void mask_scores(const AttentionSizes&, int64_t, int64_t, int64_t, int64_t, int64_t, double*, int64_t);

}  // namespace tandem::library
