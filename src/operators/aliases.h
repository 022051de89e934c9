// Other names of parameters, for operator functions and for functions written in Python (tandem/ops/define.py).
#pragma once

namespace tandem {

struct Alias {
  const char* given;
  const char* ours;
};
// What users of PyTorch (and, for a few, NumPy) call our parameters; a function's own names come first.
inline constexpr Alias kAliases[] = {{"dim", "axis"},
                                     {"keepdim", "keepdims"},
                                     {"dims", "axes"},
                                     {"axis", "axes"},
                                     {"dim", "axes"},
                                     {"input", "x"},
                                     {"self", "x"},
                                     {"other", "y"},
                                     {"diagonal", "k"},
                                     {"diagonal", "offset"},
                                     {"dims", "axis"},
                                     {"dimension", "axis"},
                                     {"dim0", "axis0"},
                                     {"dim1", "axis1"},
                                     {"dim2", "axis2"},
                                     {"start_dim", "start_axis"},
                                     {"end_dim", "end_axis"},
                                     {"src", "source"},
                                     {"value", "source"},
                                     {"value", "fill_value"},
                                     {"shifts", "shift"},
                                     {"dims", "repetitions"},
                                     {"repeats", "repetitions"},
                                     {"reps", "repetitions"},
                                     {"size", "shape"},
                                     {"mat2", "y"},
                                     {"vec", "y"},
                                     {"vec2", "y"},
                                     {"exponent", "y"},
                                     {"a", "x"},
                                     {"b", "y"},
                                     {"tensor", "x"},
                                     {"input1", "x1"},
                                     {"input2", "x2"},
                                     {"input", "values"},
                                     {"train", "training"},
                                     {"from", "low"},
                                     {"to", "high"},
                                     {"split_size", "split_size_or_sections"}};

}  // namespace tandem
