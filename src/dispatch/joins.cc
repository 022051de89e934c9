#include "dispatch/joins.h"

#include <utility>

#include "callbacks.h"

namespace tandem {

static constexpr int64_t kMostJoined = 16;

bool joins_many(const OpFunction* op, const Argument* arguments, int count) {
  if (arguments[0].kind != Argument::Kind::Count || arguments[0].integer <= kMostJoined) return false;
  const Argument& last = arguments[count - 1];
  if (arguments[0].integer != count - 2 || last.kind != Argument::Kind::Static || !PyLong_CheckExact(last.object))
    return false;
  for (int i = 1; i < count - 1; ++i)
    if (arguments[i].kind != Argument::Kind::Tensor) return false;
  const View& first = arguments[1].tensor->view;
  int overflow = 0;
  int64_t axis = PyLong_AsLongLongAndOverflow(last.object, &overflow);
  if (overflow) return false;
  if (axis < 0) axis += first.ndim + (op->joins == Joins::Stack);
  for (int i = 1; i < count - 1; ++i) {
    const View& v = arguments[i].tensor->view;
    if (v.dtype != first.dtype || v.ndim != first.ndim || v.numel() == 0) return false;
    for (int k = 0; k < v.ndim; ++k)
      if (v.shape[k] != first.shape[k] && (op->joins == Joins::Stack || k != axis)) return false;
  }
  return op->joins == Joins::Stack ? axis >= 0 && axis <= first.ndim : axis >= 0 && axis < first.ndim;
}

TensorList join_many(OpFunction* op, Argument* arguments, int count, bool* returns_tuple) {
  SmallVector<TensorRef, 20> parts;
  SmallVector<Argument, 20> list;
  int64_t begin = 1, left = count - 2, size = kMostJoined;
  while (left > 0) {
    while (size > left || left - size == 1) size /= 2;  // none alone: axes of size 1 have plans of their own
    if (left <= 3) size = left;
    list.clear();
    list.push_back(arguments[0]);
    list[0].integer = size;
    for (int64_t i = 0; i < size; ++i) list.push_back(arguments[begin + i]);
    list.push_back(arguments[count - 1]);
    TensorList part = dispatch(op, list.data(), static_cast<int>(list.size()), returns_tuple);
    parts.push_back(std::move(part[0]));
    begin += size;
    left -= size;
  }
  list.clear();
  list.push_back(arguments[0]);
  list[0].integer = static_cast<int64_t>(parts.size());
  for (TensorRef& part : parts) {
    Argument& a = list.emplace_back();
    a.kind = Argument::Kind::Tensor;
    a.tensor = part.get();
  }
  list.push_back(arguments[count - 1]);
  return dispatch(reinterpret_cast<OpFunction*>(callbacks.concat), list.data(), static_cast<int>(list.size()),
                  returns_tuple);
}

}  // namespace tandem
