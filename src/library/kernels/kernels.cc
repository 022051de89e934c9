// The table of one instruction set; cmake/kernels.cmake compiles this file once for each.
#include "library/kernels/kernels.h"

#include "library/kernels/activation.h"
#include "library/kernels/convert.h"
#include "library/kernels/depthwise.h"
#include "library/kernels/distance.h"
#include "library/kernels/edges.h"
#include "library/kernels/fft.h"
#include "library/kernels/gemm.h"
#include "library/kernels/gemm_listed.h"
#include "library/kernels/order.h"
#include "library/kernels/pool.h"
#include "library/kernels/ranks.h"
#include "library/kernels/recurrence.h"
#include "library/kernels/row.h"
#include "library/kernels/search.h"
#include "library/kernels/taps.h"
#include "library/kernels/transpose.h"
#include "library/kernels/winograd.h"

#define NAME_OF(isa) NAME_OF_TEXT(isa)
#define NAME_OF_TEXT(isa) #isa

namespace tandem::library::TANDEM_ISA {

template <typename T>
void range(const T* from, int64_t n, int64_t* smallest, int64_t* largest) {
  T low = static_cast<T>(from[0]), high = from[0];
  for (int64_t i = 0; i < n; ++i) {
    low = from[i] < low ? from[i] : low;
    high = from[i] > high ? from[i] : high;
  }
  *smallest = low < *smallest ? low : *smallest;
  *largest = high > *largest ? high : *largest;
}

extern const Kernels table;
const Kernels table = {
    NAME_OF(TANDEM_ISA),
    gemm_kernels<float>(),
    gemm_kernels<double>(),
    gemm_kernels<uint32_t>(),
    gemm_kernels<uint64_t>(),
    listed_kernels(),
    pool_kernels<float>(),
    pool_kernels<double>(),
    row_kernels<float>(),
    row_kernels<double>(),
    fft_kernels<float>(),
    fft_kernels<double>(),
    search_kernels<float>(),
    search_kernels<double>(),
    search_kernels<int32_t>(),
    search_kernels<int64_t>(),
    order_kernels<float>(),
    order_kernels<double>(),
    order_kernels<int32_t>(),
    order_kernels<int64_t>(),
    distance_kernels<float>(),
    distance_kernels<double>(),
    winograd_kernels<Large>(),
    winograd_kernels<Small>(),
    depthwise_kernels(),
    tap_kernels<float>(),
    tap_kernels<double>(),
    edge_kernels<float>(),
    edge_kernels<double>(),
    recurrence_kernels(),
    &activate,
    &sum_ranks<float>,
    &sum_ranks<double>,
    &transpose_u32,
    &from_half,
    &to_half,
    &from_bfloat16,
    &to_bfloat16,
    &range<int32_t>,
    &range<int64_t>,
};

}  // namespace tandem::library::TANDEM_ISA
