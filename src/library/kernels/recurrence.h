// One step of a recurrent layer, for some of its units and some sequences; see RecurrenceKernels.
#pragma once
#include "library/kernels/activation.h"
#include "library/kernels/kernels.h"

namespace tandem::library::TANDEM_ISA {

using UnitVector = Floats;
constexpr int kUnits = kWidth<float>;
constexpr int kSequences = kUnits == 16 ? 6 : 3;  // whose sums are in registers at one time

template <Recurrence kind>
constexpr int kGates = kind == Recurrence::Lstm  ? 4
                       : kind == Recurrence::Gru ? 3
                                                 : 1;

// Sums of R sequences and U blocks of units, whose gates lie side by side in the weights.
template <Recurrence kind, int R, int U>
inline __attribute__((always_inline)) void recurrence_block(const RecurrenceStep& s, int64_t row, int64_t block) {
  constexpr int G = kGates<kind>;
  const int64_t panel = s.hidden * G * kUnits;
  const float* w = s.weights + block * panel;
  const float* h = s.state + row * s.hidden;
  UnitVector sums[R][U][G] = {};
  for (int64_t k = 0; k < s.hidden; ++k, w += G * kUnits)
#pragma GCC unroll 2
    for (int u = 0; u < U; ++u)
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) {
        const UnitVector factor = load(w + u * panel + g * kUnits);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) sums[r][u][g] += factor * h[r * s.hidden + k];
      }
  for (int r = 0; r < R; ++r)
    for (int u = 0; u < U; ++u) {
      const int64_t unit = (block + u) * kUnits, count = s.hidden - unit < kUnits ? s.hidden - unit : kUnits;
      const auto part = [&](const float* from) {  // of these units
        if (count == kUnits) return load(from);
        float padded[kUnits] = {};
        for (int64_t i = 0; i < count; ++i) padded[i] = from[i];
        return load(padded);
      };
      const auto put = [&](float* to, UnitVector v) {
        if (count == kUnits) return store(to, v);
        for (int64_t i = 0; i < count; ++i) to[i] = v[i];
      };
      const auto given = [&](int g) { return part(s.given + (row + r) * s.given_row + s.order[g] * s.hidden + unit); };
      const int64_t at = (row + r) * s.hidden + unit;
      const UnitVector* sum = sums[r][u];
      if constexpr (kind == Recurrence::Lstm) {
        const UnitVector in = sigmoid(sum[0] + given(0)), forget = sigmoid(sum[1] + given(1));
        const UnitVector cell = forget * part(s.cell + at) + in * tanh(sum[2] + given(2));
        put(s.next_cell + at, cell);
        put(s.next + at, sigmoid(sum[3] + given(3)) * tanh(cell));
      } else if constexpr (kind == Recurrence::Gru) {
        const auto bias = [&](int g) { return part(s.bias + s.order[g] * s.hidden + unit); };
        const UnitVector reset = sigmoid(sum[0] + bias(0) + given(0)), update = sigmoid(sum[1] + bias(1) + given(1));
        const UnitVector fresh = tanh(given(2) + reset * (sum[2] + bias(2)));
        put(s.next + at, fresh + update * (part(s.state + at) - fresh));
      } else {
        const UnitVector total = sum[0] + given(0);
        put(s.next + at, kind == Recurrence::Tanh         ? tanh(total)
                         : total > 0.0f || total != total ? total
                                                          : UnitVector{});
      }
    }
}

template <Recurrence kind, int R>
void recurrence_rows(const RecurrenceStep& s, int64_t row) {
  int64_t block = s.first_block;
  if constexpr (R == 1)  // two blocks, so that sums do not wait for one another
    for (; block + 2 <= s.last_block; block += 2) recurrence_block<kind, R, 2>(s, row, block);
  for (; block < s.last_block; ++block) recurrence_block<kind, R, 1>(s, row, block);
}

template <Recurrence kind, int R = kSequences>
void recurrence_some(const RecurrenceStep& s, int64_t row, int64_t count) {
  if (count == R) return recurrence_rows<kind, R>(s, row);
  if constexpr (R > 1) recurrence_some<kind, R - 1>(s, row, count);
}

template <Recurrence kind>
void recurrence_step(const RecurrenceStep& s) {
  const int64_t parts = (s.rows + kSequences - 1) / kSequences;
  for (int64_t i = 0, row = 0; i < parts; ++i) {
    const int64_t end = s.rows * (i + 1) / parts;
    recurrence_some<kind>(s, row, end - row);
    row = end;
  }
}

inline RecurrenceKernels recurrence_kernels() {
  return {kUnits,
          {&recurrence_step<Recurrence::Lstm>, &recurrence_step<Recurrence::Gru>, &recurrence_step<Recurrence::Tanh>,
           &recurrence_step<Recurrence::Relu>}};
}

}  // namespace tandem::library::TANDEM_ISA
