// Inner loops that are compiled once per instruction set (cmake/kernels.cmake); kernels() is the best set for this CPU.
//
// Files in this folder must not instantiate anything shared with the rest (standard containers, algorithms): the linker
// keeps one copy of such a function, and it could be the one for a CPU that we are not on.
#pragma once
#include <cstdint>
#include <type_traits>

namespace tandem::library {

template <typename T>
struct Matrix {  // element (i, j) is data[i * row + j * column]
  T* data;
  int64_t row, column;
};

// Memory that is wanted soon: `rows` rows, `stride` bytes apart, of `count` cache lines, `step` bytes apart. A product
// asks for them along with its tiles, so that whoever reads them next does not wait.
struct Asks;
struct Ahead {
  const char* data = nullptr;
  int64_t count = 0, step = 0, rows = 0, stride = 0;
  Asks* more = nullptr;  // what tiles ask for that have nothing else to ask for
};
// Several parts of memory, and how far they were asked for.
struct Asks {
  static constexpr int kMost = 8;
  Ahead parts[kMost];
  int count = 0, at = 0;
  int64_t row = 0, next = 0;

  void add(const Ahead& part) {  // if there is room
    if (part.rows > 0 && count < kMost) parts[count++] = part;
  }
};

// The left side of a packed product: panels, or, where `row` is not 0, rows that lie so many elements apart. Those of a
// last tile that is not whole are a panel of their own then.
template <typename T>
struct LeftRows {
  const T* data;
  int64_t row = 0;
  const T* rest = nullptr;

  LeftRows(const T* panels) : data(panels) {}
  LeftRows(const T* data, int64_t row, const T* rest) : data(data), row(row), rest(rest) {}
};

template <typename T>
struct GemmKernels {
  int mr, nr;     // tile of the packed product
  bool in_place;  // whether it takes rows of its left side as they lie
  // c = a b (+ bias along n), for small sizes. Needs b.column == 1 and c.column == 1.
  void (*small)(int64_t m, int64_t n, int64_t k, Matrix<const T> a, Matrix<const T> b, Matrix<T> c, const T* bias);
  // c = a b (+ bias), where a and b are both contiguous along k (a.column == 1, b.row == 1): dot products.
  void (*dot)(int64_t m, int64_t n, int64_t k, Matrix<const T> a, Matrix<const T> b, Matrix<T> c, const T* bias);
  // c = a b (+ bias) for a few rows of a, streaming through b once. Needs b.column == 1 and c.column == 1.
  void (*thin)(int64_t m, int64_t n, int64_t k, Matrix<const T> a, Matrix<const T> b, Matrix<T> c, const T* bias);
  // Panels of `width` rows of a matrix, k-major, padded with zeros: to[panel][p][i] = from(panel * width + i, p).
  void (*pack)(int64_t rows, int64_t k, int width, Matrix<const T> from, T* to);
  // c (m, n) = or += a packed_b. `bias` (along n) is added where not accumulating. Every panel of b is
  // asked for along with the one before, and `ahead` along with the last.
  void (*product)(int64_t m, int64_t n, int64_t k, const LeftRows<T>& a, const T* b, Matrix<T> c, bool accumulate,
                  const T* bias, const Ahead& ahead);
  // c (m, n) = or += a packed_b with a as it lies in memory, for matrices that stay in the cache. Panels of b lie
  // `panel` elements apart, so that they may be longer than k. Reads a in whole tiles: up to mr - 1 rows more than m.
  // Needs c.column == 1.
  void (*product_of)(int64_t m, int64_t n, int64_t k, Matrix<const T> a, const T* b, int64_t panel, Matrix<T> c,
                     bool accumulate);
};

// An element of a that is not 0, and where its row of a packed panel of b begins.
struct Listed {
  float value;
  int32_t place;
};
struct ListedRow {
  const Listed *begin, *end;
};

// Products that leave out zeros of the left side (library/gemm_listed.h). A panel of b has at most `columns` columns,
// whose rows lie as many elements apart, and whole vectors of `width` are computed.
struct ListedKernels {
  int width, columns;
  bool (*pack)(int64_t columns, int64_t k, Matrix<const float> b, float* to);  // whether all of it is finite
  // c = or += a b, plus bias where not accumulating. Asks for some lines of memory with each row.
  void (*rows)(int64_t rows, int64_t columns, const ListedRow* a, const float* b, Matrix<float> c, bool accumulate,
               const float* bias, Asks& asks, int64_t lines);
};

// Rows of n results side by side (channels, or neighbouring positions), each of which takes in one more element of its
// window.
template <typename T>
struct PoolKernels {
  using Index = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
  // Where x[i * stride] is greater than best[i], or NaN, it takes its place, and where[i] = first + i * step.
  void (*max)(const T* x, int64_t stride, T* best, Index* where, Index first, Index step, int64_t n);
  // The same for all elements of the windows at once: element t of window i is x[offsets[t] + i].
  void (*max_window)(const T* x, const int64_t* offsets, const Index* indices, int64_t taps, T* best, Index* where,
                     int64_t n);
  // best[i] = the largest of x[i + offsets[t]] and `lowest`; NaN counts as the greatest.
  void (*max_values)(const T* x, const int64_t* offsets, int64_t taps, T lowest, T* best, int64_t n);
  void (*mean_window)(const T* x, const int64_t* offsets, int64_t taps, T* mean, T factor, int64_t n);
  void (*add)(const T* x, int64_t stride, T* sum, int64_t n);    // sum[i] += x[i * stride]
  void (*spread)(const T* x, T* to, int64_t stride, int64_t n);  // to[i * stride] += x[i]
  T (*sum)(const T* x, int64_t n);
};

// Rows of attention scores.
template <typename T>
struct RowKernels {
  T (*max)(const T* x, int64_t n);
  T (*exp_sum)(T* x, int64_t n, T factor, T shift);  // x = exp(x * factor - shift); returns the sum
  T (*dot)(const T* x, const T* y, int64_t n);
  void (*scale)(T* x, int64_t n, T factor);
  // From scores and gradients of probabilities to probabilities and gradients of scores before scaling:
  // p = exp(p * factor - log_sum), g = p * (g - delta) * scale.
  void (*backward)(T* p, T* g, int64_t n, T factor, T log_sum, T delta, T scale);
};

// Fourier transforms of `width` lines at once (kernels/fft.h). A block holds elements of all lines side by side.
inline constexpr int kLargestRadix = 61;

template <typename T>
struct FftPass {
  int64_t radix, m, s;
  const T* twiddles;  // [m][radix - 1] complex
  const T* roots;     // of unity, for radices without code of their own
};

template <typename T>
struct FftKernels {
  int width;
  T* (*passes)(const FftPass<T>* list, int count, T* x, T* y);  // from x, alternating; returns where the result is
  void (*load)(const T* const* lines, int count, int64_t stride, int64_t n, bool swap, T* block);
  void (*store)(const T* block, T* const* lines, int count, int64_t stride, int64_t n, bool swap, T factor);
  void (*load_real)(const T* const* lines, int count, int64_t stride, int64_t n, int part, T* block);
  void (*store_real)(const T* block, int part, T* const* lines, int count, int64_t stride, int64_t n, T factor);
  void (*multiply)(T* block, int64_t n, const T* factors, bool conjugate);
  void (*multiply_lanes)(T* block, int64_t n, const T* fine, const T* coarse);
  void (*split_real)(T* block, int64_t half, const T* roots, bool doubled);
  void (*join_real)(T* block, int64_t half, const T* roots, bool halved);
  void (*turn)(const T* from, int64_t step, int64_t n, T* block);
};

// The first position of the largest (smallest) of n > 0 elements; NaN counts as the extremum.
template <typename T>
struct SearchKernels {
  int64_t (*argmax)(const T* x, int64_t n);
  int64_t (*argmin)(const T* x, int64_t n);
};

// Rows of at most kLongestRow elements in order. False where elements lie too unevenly, or there are NaNs: the row must
// be sorted by other means then. `work` has order_work<T>(n) bytes.
inline constexpr int64_t kLongestRow = 1 << 14;
template <typename T>
struct OrderKernels {
  bool (*sort)(const T* x, int64_t n, T* to, char* work);
};
template <typename T>
constexpr int64_t order_work(int64_t n) {
  return n * static_cast<int64_t>(2 * sizeof(T) + 2 + 8) + 256;  // keys twice, places, up to 4 n counts
}

// Distances of the point x of d coordinates to n others: coordinate k of point i is points[k * apart + i]. Sums of
// sizes or of squares of differences, or the largest size.
enum class DistanceKind { Sum, Squares, Largest };
template <typename T>
struct DistanceKernels {
  using Function = void (*)(const T* points, int64_t apart, const T* x, int64_t d, int64_t n, T* out);
  Function sum, squares, largest;
};

// Transforms of Winograd's convolutions (kernels/winograd.h). Blocks lie side by side in rows (row, position, channel)
// of `width` positions; to[e * apart + block * channels + c] is point e of channel c. Channels are whole vectors.
struct WinogradKernels {
  int block;  // outputs along each axis, which are made of block + 2 inputs
  int panel;  // output channels that weights are taken in: taps are [k][9][panel]
  using ToPoints = void (*)(const float* rows, int64_t width, int64_t channels, int64_t blocks, float* to,
                            int64_t apart);
  ToPoints input, gradient;  // of block + 2 positions each way, of `block`; blocks are `block` positions apart
  void (*output)(const float* from, int64_t apart, int64_t channels, int64_t blocks, const float* bias, float* rows,
                 int64_t width);
  using WeightsToPoints = void (*)(const float* taps, int64_t k, float* to, int64_t apart);
  WeightsToPoints weights, turned;  // `turned` by half a turn, as the gradient of the input wants them
  void (*weights_gradient)(const float* from, int64_t apart, int64_t row, int64_t k, float* taps);
};

// A row of positions in kDepthwiseChannels channels, and the part of a window that lies inside of the image at all of
// them. Distances are in floats.
constexpr int kDepthwiseChannels = 16;
struct DepthwiseRow {
  const float* from;
  int64_t step, row, column;  // from one position to the next, between rows and between columns of the window
  float* weights;             // of the channels side by side, of the first tap
  int64_t weights_row, weights_column;
  int64_t rows, columns;  // of the window
  float* to;
  int64_t to_step, count;  // positions
};

struct DepthwiseKernels {
  // to[i] = bias (or 0) + the sum over taps of from[i * step + tap] * weights[tap].
  void (*sum)(const DepthwiseRow& row, const float* bias);
  // weights[tap] += the sum over positions of from[i * step + tap] * to[i].
  void (*dot)(const DepthwiseRow& row);
};

// Places to read and their weights, of some points in order: tap t of point i is offsets[i * taps + t], nothing where
// that is negative. regular[i]: none is, and the taps of each run lie side by side in memory.
template <typename T>
struct TapBlock {
  const int64_t* offsets;
  const T* weights;
  const uint8_t* regular;
  int64_t points;
  int taps, run;
};

template <typename T>
struct TapKernels {
  void (*sum)(const T* plane, const TapBlock<T>& block, T* out);    // out[i] = sum over t of weight times element
  void (*scatter)(T* plane, const TapBlock<T>& block, const T* g);  // element += weight times g[i]
  void (*dot)(const T* plane, const TapBlock<T>& block, const T* g,
              T* sums);  // sums[i * taps + t] += element times g[i]
};

// What edges of a graph read: edge q is row column[q] of x, `stride` elements apart, of heads * width elements. Weights
// (or results) of edge q are those of number order[q], or q, `heads` to each; null values: all are 1.
template <typename T>
struct EdgeRows {
  const T* x;
  int64_t stride, heads, width;
  const int64_t *column, *order;
  const T* values;
};

template <typename T>
struct EdgeKernels {
  void (*sum)(const EdgeRows<T>& edges, int64_t begin, int64_t end, T* out);  // over edges begin to end
  // The dot product with `a`, head by head, for every edge.
  void (*dot)(const EdgeRows<T>& edges, const T* a, int64_t begin, int64_t end, T* out);
  void (*softmax)(const T* x, int64_t rows, int64_t heads, T* out);  // over rows, each head for itself
  void (*softmax_backward)(const T* y, const T* g, int64_t rows, int64_t heads, T* out);
};

// What is done to a result of conv_fused after the residual is added. The numbers are those of
// tandem/ops/conv_fused.py.
enum class Activation : int64_t { None, Relu, Clip, Silu, Sigmoid, HardSwish, LeakyRelu, Gelu };

// x = activation(x), of n floats; false where it has no vectors.
using ActivationKernel = bool (*)(float* x, int64_t n, Activation kind, float alpha, float beta);

// Kinds of recurrent layers; the numbers are those of tandem/ops/recurrence.py.
enum class Recurrence : int { Lstm, Gru, Tanh, Relu };

// One step of some blocks of units of a layer, for sequences whose states lie one below the other.
struct RecurrenceStep {
  const float* weights;  // of blocks of units, (blocks, hidden, gates, units of a block), padded with zeros
  const float* given;    // what the input gives to the gates, (gates, hidden) to a sequence
  int64_t given_row;
  const float* bias;          // (gates, hidden), of a GRU
  const float *state, *cell;  // before it, (rows, hidden), and
  float *next, *next_cell;    // after it
  int64_t rows, hidden, first_block, last_block;
  const int64_t* order;  // where gates lie in `given` and `bias`: input, forget, cell, output; reset, update, new
};

struct RecurrenceKernels {
  int64_t units;                           // of a block
  void (*step[4])(const RecurrenceStep&);  // by kind
};

struct Kernels {
  const char* name;
  GemmKernels<float> f32;
  GemmKernels<double> f64;
  GemmKernels<uint32_t> u32;  // all integers: products wrap around, so signs and narrow types take care of themselves
  GemmKernels<uint64_t> u64;
  ListedKernels listed;
  PoolKernels<float> pool_f32;
  PoolKernels<double> pool_f64;
  RowKernels<float> row_f32;
  RowKernels<double> row_f64;
  FftKernels<float> fft_f32;
  FftKernels<double> fft_f64;

  SearchKernels<float> search_f32;
  SearchKernels<double> search_f64;
  SearchKernels<int32_t> search_i32;
  SearchKernels<int64_t> search_i64;
  OrderKernels<float> order_f32;
  OrderKernels<double> order_f64;
  OrderKernels<int32_t> order_i32;
  OrderKernels<int64_t> order_i64;
  DistanceKernels<float> distance_f32;
  DistanceKernels<double> distance_f64;
  WinogradKernels winograd, winograd_small;  // blocks of 4 x 4 and of 2 x 2 outputs
  DepthwiseKernels depthwise;
  TapKernels<float> tap_f32;
  TapKernels<double> tap_f64;
  EdgeKernels<float> edge_f32;
  EdgeKernels<double> edge_f64;
  RecurrenceKernels recurrence;
  ActivationKernel activate;

  // out[k][i] = (in[0][i] + ... + in[count - 1][i]) * factor / divisor, of which one is 1. An output may be an input.
  void (*sum_ranks_f32)(const float* const* in, int count, float* const* out, int outs, int64_t n, float factor,
                        float divisor);
  void (*sum_ranks_f64)(const double* const* in, int count, double* const* out, int outs, int64_t n, double factor,
                        double divisor);

  // to[r * to_row + c] = from[c * from_row + r], for r < rows and c < columns.
  void (*transpose_u32)(const uint32_t* from, int64_t from_row, uint32_t* to, int64_t to_row, int64_t rows,
                        int64_t columns);

  void (*from_half)(const uint16_t* from, float* to, int64_t n);
  void (*to_half)(const float* from, uint16_t* to, int64_t n);
  void (*from_bfloat16)(const uint16_t* from, float* to, int64_t n);
  void (*to_bfloat16)(const float* from, uint16_t* to, int64_t n);

  void (*range_i32)(const int32_t* from, int64_t n, int64_t* smallest, int64_t* largest);  // updates both
  void (*range_i64)(const int64_t* from, int64_t n, int64_t* smallest, int64_t* largest);
};

const Kernels& kernels();

}  // namespace tandem::library
