#include "operators/promotion.h"

namespace tandem {

namespace {

constexpr uint32_t kUnsigned = 1u << static_cast<int>(DType::UInt8) | 1u << static_cast<int>(DType::UInt16) |
                               1u << static_cast<int>(DType::UInt32);

// Types of arguments as a bit each.
struct Types {
  uint32_t integers = 0, floats = 0, complexes = 0;

  void add(DType dtype) {
    const uint32_t bit = 1u << static_cast<int>(dtype);
    if (is_complex(dtype))
      complexes |= bit;
    else if (is_floating(dtype))
      floats |= bit;
    else if (dtype != DType::Bool)
      integers |= bit;
  }
};

// Whether tensors without axes could widen those with axes: they are of the same kind, and of another type.
bool could_widen(const Types& single, const Types& many) {
  const uint32_t inexact = single.floats | single.complexes, among = many.floats | many.complexes;
  return (many.integers && (single.integers & ~many.integers)) || (among && (inexact & ~among));
}

}  // namespace

void PromotionRule::ask(const Argument* arguments, int count) {
  Types single, many;
  for (int i = 0; i < count; ++i) {
    if (arguments[i].kind != Argument::Kind::Tensor) continue;
    const View& view = arguments[i].tensor->view;
    (view.ndim == 0 ? single : many).add(view.dtype);
  }
  // Sums of unsigned integers are signed in PyTorch, and unsigned by the standard.
  const bool unsigned_ones = (single.integers | many.integers) & kUnsigned;
  if (!unsigned_ones && !could_widen(single, many)) return;
  PyObject* answer = PyObject_CallNoArgs(callbacks.axes_first);
  if (!answer) throw PythonError{};
  before_ = call_mode.axes_first;
  asked_ = true;
  call_mode.axes_first = answer == Py_True;
  Py_DECREF(answer);
}

}  // namespace tandem
