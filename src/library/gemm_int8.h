// Products of whole numbers: rows of 8-bit activations with packed weights of 8 or 4 bits, summed in 32 bits.
//
// Note [Integer products]
// Weights are packed once, when a layer is quantised (tandem/quantization/packing.py), in a layout that is the same for
// all processors. 8 bits: outputs in panels of 32, k in fours: [panel][k / 4][32][4], zeros where there are none.
// 4 bits: panels of 16, and groups of g weights that share a scale: [panel][group][g / 8][16][4] bytes; byte (i, ., j)
// has weight 4 i + j of its group, plus 8, in its low half, and weight g / 2 + 4 i + j in its high half.
//
// vpdpbusd multiplies four unsigned by four signed bytes and adds them up in 32 bits. With weights of 8 bits
// activations are the unsigned ones: x = scale (q - 128), so that 128 times the sum of an output's weights is taken
// off. With 4 bits weights are: 8 times the sum of a group's activations is taken off.
#pragma once
#include <cstdint>

namespace tandem::library {

constexpr int64_t kInt8Panel = 32, kInt4Panel = 16, kInt8Zero = 128;

// What becomes of the sums of an output.
struct Int8Output {
  const float* scale;           // of weights, by output
  const int32_t* weight_sums;   // by output
  const float* bias = nullptr;  // by output
};

// c[i * stride + j] = x_scale[i] * scale[j] * (sum over k of (x[i][k] - 128) * w[j][k]) + bias[j], for n outputs from
// panel `first` on. x: m rows of k4 * 4 bytes, `row` bytes apart.
void int8_rows(const uint8_t* x, int64_t row, const float* x_scale, int64_t m, const int8_t* panels, int64_t k4,
               int64_t first, int64_t n, const Int8Output& output, float* c, int64_t stride);

// c[i * stride + j] = sum over k of x[i][k] * w[j][k], for n outputs: sums as they are.
void int8_sums(const uint8_t* x, int64_t row, int64_t m, const int8_t* panels, int64_t k4, int64_t n, int32_t* c,
               int64_t stride);

// The same of 4-bit weights in groups: x: groups * g signed bytes, x_scale and x_sums: by group.
void int4_row(const int8_t* x, const float* x_scale, const int32_t* x_sums, const uint8_t* panels, const float* scale,
              int64_t groups, int64_t g, int64_t outputs, int64_t first, int64_t n, const float* bias, float* c);

// The largest of k numbers, whatever their signs; NaN where one is infinite or NaN.
float largest_number(const float* x, int64_t k);
// q = round(x / scale) + 128 within 1 and 255, of k numbers; zeros (128) up to `padded`. A scale of 0 asks for the
// row's own, its largest over 127. Returns the scale.
float quantize_row(const float* x, int64_t k, int64_t padded, float scale, uint8_t* q);
// Signed, in a group of its own scale. Returns the scale.
float quantize_group(const float* x, int64_t k, int8_t* q, int32_t* sum);

}  // namespace tandem::library
