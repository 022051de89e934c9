// recurrence (gates (T, N, D * G * H), h (D, N, H), w (D, G * H, H)[, c (D, N, H) or bias (D, G * H)][, lengths (N)])
// -> hidden states (T, D, N, H), the last ones (D, N, H)[, the last cells (D, N, H)]. ints: [kind, 1 from the end to
// the start, 1 with lengths, where the gates lie...]. The second of two directions goes from the end to the start. A
// sequence that has ended keeps its state, and its hidden states are 0. float32; lengths are int64.
//
// Note [Recurrent layers]
// A step is a product of the states with the weights and a little arithmetic for each unit. Here all steps are one
// call: weights are packed so that the gates of a block of units lie side by side, sums stay in registers until the new
// states are there, and nothing is called between steps. Directions and sequences are independent of one another: each
// thread has some of them. Where the weights are larger than a core's own cache each thread has some of the units
// instead, and they meet after every step; every other step goes through the blocks backwards, to begin with the
// weights that are still near.
#include <algorithm>
#include <atomic>
#include <memory>

#include "check.h"
#include "device/parallel.h"
#include "device/relax.h"
#include "library/kernels/kernels.h"
#include "library/registry.h"
#include "library/scratch.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

constexpr int64_t kNear = 512 << 10;    // bytes of weights that stay in a core's own cache
constexpr double kOperations = 60;      // of one thread in a nanosecond
constexpr double kMeeting = 2'000;      // nanoseconds of a step that are worth meeting for
constexpr int kGates[] = {4, 3, 1, 1};  // by kind
constexpr int kAttributes = 3;          // before the order of the gates

int64_t up(int64_t n, int64_t d) {
  return (n + d - 1) / d;
}

// An operand in row-major order: itself, or a copy.
class Dense {
 public:
  explicit Dense(const View& v) : view(v) {
    if (v.is_contiguous()) return;
    copy_.resize(static_cast<size_t>(v.numel()) * item_size(v.dtype));
    view.data = copy_.data();
    set_contiguous(view);
    copy_elements(v, view);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(view.data);
  }
  View view;

 private:
  Scratch<char> copy_;
};

struct Packed : Kept {
  explicit Packed(size_t count) : weights(static_cast<float*>(allocate(count * sizeof(float), &capacity))) {}
  ~Packed() override { deallocate(weights, capacity); }
  size_t capacity = 0;
  float* const weights;  // outlives the call, unlike Scratch
};

struct Layer {
  Recurrence kind;
  int64_t gates, steps, rows, directions, hidden, blocks;
  bool reverse;
  const int64_t *order, *lengths;
  const float *given, *bias, *first, *first_cell;
  float *out, *last, *last_cell;
  const float* weights;

  int64_t panel() const { return hidden * gates * kernels().recurrence.units; }
  bool backwards(int64_t d) const { return reverse || d == 1; }

  void pack(const View& w, float* to) const {
    const int64_t units = kernels().recurrence.units;
    const float* from = reinterpret_cast<const float*>(w.data);
    parallel_for(directions * blocks, static_cast<double>(panel()), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int64_t g = 0; g < gates; ++g)
          for (int64_t u = 0; u < units; ++u) {
            const int64_t unit = i % blocks * units + u;
            const float* row = from + i / blocks * w.strides[0] + (order[g] * hidden + unit) * w.strides[1];
            float* at = to + i * panel() + g * units + u;
            for (int64_t k = 0; k < hidden; ++k) at[k * gates * units] = unit < hidden ? row[k * w.strides[2]] : 0.0f;
          }
    });
  }

  // All steps of rows of one direction, for the blocks from first_block to last_block; meet() after each. Without
  // lengths states are where the results are. With them, they are in `states`: (2, rows, hidden) for states and, of an
  // LSTM, cells.
  template <typename Meet>
  void run(int64_t d, int64_t row, int64_t count, int64_t first_block, int64_t last_block, float* states,
           Meet&& meet) const {
    const int64_t begin = (d * rows + row) * hidden, size = count * hidden;
    const bool cells = kind == Recurrence::Lstm;
    RecurrenceStep s{};
    s.weights = weights + d * blocks * panel();
    s.given_row = directions * gates * hidden;
    s.bias = bias ? bias + d * gates * hidden : nullptr;
    s.rows = count, s.hidden = hidden, s.order = order;
    s.state = first + begin, s.cell = cells ? first_cell + begin : nullptr;
    float *kept = states, *kept_cells = states + 2 * rows * hidden;  // each twice
    for (int64_t i = 0; i < steps; ++i) {
      const int64_t t = backwards(d) ? steps - 1 - i : i;
      float* result = out + (t * directions * rows) * hidden + begin;
      float* place = kept + (i % 2 * rows + row) * hidden;
      s.given = given + (t * rows + row) * s.given_row + d * gates * hidden;
      s.next = lengths ? place : result;
      s.next_cell = kept_cells + (i % 2 * rows + row) * hidden;
      step(s, first_block, last_block, i % 2 == 1);
      if (lengths) end_sequences(s, row, t, first_block, last_block, result);
      s.state = s.next;
      if (cells) s.cell = s.next_cell;
      meet();
    }
    const int64_t units = kernels().recurrence.units;
    const int64_t from = first_block * units, to = std::min(hidden, last_block * units);
    for (int64_t r = 0; r < size; r += hidden) {
      std::copy(s.state + r + from, s.state + r + to, last + begin + r + from);
      if (cells) std::copy(s.cell + r + from, s.cell + r + to, last_cell + begin + r + from);
    }
  }

  void step(RecurrenceStep& s, int64_t first_block, int64_t last_block, bool from_the_end) const {
    const auto function = kernels().recurrence.step[static_cast<int>(kind)];
    constexpr int64_t kAtOnce = 2;
    for (int64_t i = 0, n = up(last_block - first_block, kAtOnce); i < n; ++i) {
      s.first_block = first_block + (from_the_end ? n - 1 - i : i) * kAtOnce;
      s.last_block = std::min(s.first_block + kAtOnce, last_block);
      function(s);
    }
  }

  // Units of sequences that have ended go on with the states they had.
  void end_sequences(const RecurrenceStep& s, int64_t row, int64_t t, int64_t first_block, int64_t last_block,
                     float* result) const {
    const int64_t units = kernels().recurrence.units;
    const int64_t from = first_block * units, to = std::min(hidden, last_block * units);
    for (int64_t r = 0; r < s.rows; ++r) {
      const int64_t at = r * hidden;
      if (t < lengths[row + r]) {
        std::copy(s.next + at + from, s.next + at + to, result + at + from);
        continue;
      }
      std::copy(s.state + at + from, s.state + at + to, s.next + at + from);
      if (s.cell) std::copy(s.cell + at + from, s.cell + at + to, s.next_cell + at + from);
      std::fill(result + at + from, result + at + to, 0.0f);
    }
  }
};

// Where threads of a team meet.
class Meeting {
 public:
  void arrive(int size) {
    const uint32_t now = round_.load();
    if (waiting_.fetch_add(1) + 1 == size) {
      waiting_.store(0);
      round_.store(now + 1);
      round_.notify_all();
      return;
    }
    for (int i = 0; i < 4000 && round_.load() == now; ++i) relax();
    round_.wait(now);
  }

 private:
  std::atomic<int> waiting_{0};
  std::atomic<uint32_t> round_{0};
};

struct Team {
  const Layer* layer;
  float* states;
  Meeting meeting;
  void run(int index, int size) {
    const int64_t begin = layer->blocks * index / size, end = layer->blocks * (index + 1) / size;
    for (int64_t d = 0; d < layer->directions; ++d)
      layer->run(d, 0, layer->rows, begin, end, states + d * layer->rows * layer->hidden * 4,
                 [&] { meeting.arrive(size); });
  }
};

void run_by_units(const Layer& layer, float* states) {
  Team team{&layer, states, {}};
  const int size = begin_team(
      static_cast<int>(std::min<int64_t>(num_threads(), layer.blocks)), nullptr,
      [](int index, int count, void* data) { static_cast<Team*>(data)->run(index, count); }, &team);
  team.run(0, size);
  end_team(size);
}

void run_recurrence(const Call& call) {
  TD_CHECK(call.num_ints >= kAttributes && call.ints[0] >= 0 && call.ints[0] < 4, "attributes of recurrence");
  Layer layer{};
  layer.kind = static_cast<Recurrence>(call.ints[0]);
  layer.gates = kGates[call.ints[0]];
  layer.reverse = call.ints[1] != 0;
  layer.order = call.ints + kAttributes;
  const bool cells = layer.kind == Recurrence::Lstm, third = layer.gates > 1, ends = call.ints[2] != 0;
  TD_CHECK(call.num_ints == kAttributes + layer.gates && call.num_inputs == 3 + third + ends &&
               call.num_outputs == 2 + cells,
           "operands of recurrence");
  const View &given = call.inputs[0], &h = call.inputs[1], &w = call.inputs[2], &out = call.outputs[0];
  for (int i = 0; i < 3 + third; ++i) TD_CHECK(call.inputs[i].dtype == DType::Float32, "types of recurrence");
  for (int i = 0; i < call.num_outputs; ++i) TD_CHECK(call.outputs[i].is_contiguous(), "layouts of recurrence");
  TD_CHECK(given.ndim == 3 && h.ndim == 3 && w.ndim == 3 && out.ndim == 4, "axes of recurrence");
  layer.steps = given.shape[0], layer.rows = given.shape[1], layer.directions = h.shape[0], layer.hidden = h.shape[2];
  TD_CHECK(given.shape[2] == layer.directions * layer.gates * layer.hidden && h.shape[1] == layer.rows &&
               w.shape[0] == layer.directions && w.shape[1] == layer.gates * layer.hidden &&
               w.shape[2] == layer.hidden && layer.directions <= 2,
           "sizes of recurrence");
  for (int g = 0; g < layer.gates; ++g)
    TD_CHECK(layer.order[g] >= 0 && layer.order[g] < layer.gates, "order of gates of recurrence");
  if (h.numel() == 0) return;
  const Dense gates(given), first(h), more(call.inputs[third ? 3 : 1]), lengths(call.inputs[ends ? 3 + third : 1]);
  if (third) {
    const int64_t wanted = cells ? h.numel() : layer.directions * layer.gates * layer.hidden;
    TD_CHECK(more.view.numel() == wanted, "cells or bias of recurrence");
    (cells ? layer.first_cell : layer.bias) = more.as<float>();
  }
  if (ends) {
    TD_CHECK(lengths.view.dtype == DType::Int64 && lengths.view.numel() == layer.rows, "lengths of recurrence");
    layer.lengths = lengths.as<int64_t>();
  }
  layer.given = gates.as<float>();
  layer.first = first.as<float>();
  layer.out = reinterpret_cast<float*>(out.data);
  layer.last = reinterpret_cast<float*>(call.outputs[1].data);
  layer.last_cell = cells ? reinterpret_cast<float*>(call.outputs[2].data) : nullptr;
  layer.blocks = up(layer.hidden, kernels().recurrence.units);

  const auto count = static_cast<size_t>(layer.directions * layer.blocks * layer.panel());
  const auto make = [&] {
    auto made = std::make_unique<Packed>(count);
    layer.pack(w, made->weights);
    return made;
  };
  std::unique_ptr<Kept> here;
  const bool stays = call.kept && (call.same & 4);
  if (!stays) here = make();
  layer.weights = stays ? kept_by<Packed>(*call.kept, make).weights : static_cast<Packed&>(*here).weights;

  const int64_t state = layer.rows * layer.hidden * 4;  // of a direction: states and cells, each twice
  const Scratch<float> states(static_cast<size_t>(layer.directions * state));
  const int64_t threads = num_threads();
  const int64_t bytes = layer.blocks * layer.panel() * static_cast<int64_t>(sizeof(float));
  const double a_step = 2.0 * static_cast<double>(layer.panel() * layer.blocks * layer.rows) / kOperations;
  const int64_t parts = std::min(layer.rows, up(threads, layer.directions));  // of the sequences of a direction
  const bool too_few = parts * layer.directions < threads;
  if (threads > 1 && !in_parallel() && a_step > kMeeting && (bytes > kNear || too_few) && layer.blocks >= threads)
    return run_by_units(layer, states.data());
  const double cost = a_step * static_cast<double>(layer.steps) / static_cast<double>(parts);
  parallel_for(layer.directions * parts, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t d = i / parts, row = layer.rows * (i % parts) / parts;
      const int64_t last = layer.rows * (i % parts + 1) / parts;
      layer.run(d, row, last - row, 0, layer.blocks, states.data() + d * state, [] {});
    }
  });
}

const Register recurrence("recurrence", &run_recurrence);

}  // namespace
}  // namespace tandem::library
