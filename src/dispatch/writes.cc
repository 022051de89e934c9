#include "dispatch/writes.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "callbacks.h"
#include "check.h"
#include "tensor/storage.h"

namespace tandem::dispatching {

namespace {

struct Range {
  const char* low;
  const char* high;
};

}  // namespace

static Range memory_range(const View& v) {
  const char *low = v.data, *high = v.data;
  int64_t item = static_cast<int64_t>(item_size(v.dtype));
  for (int i = 0; i < v.ndim; ++i) {
    if (v.shape[i] == 0) return {v.data, v.data};
    int64_t span = (v.shape[i] - 1) * v.strides[i] * item;
    (span < 0 ? low : high) += span;
  }
  return {low, high + item};
}

static bool same_geometry(const View& a, const View& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.ndim != b.ndim) return false;
  for (int i = 0; i < a.ndim; ++i)
    if (a.shape[i] != b.shape[i] || (a.shape[i] > 1 && a.strides[i] != b.strides[i])) return false;
  return true;
}

// Several indices share an element: writing through such a view has no defined result.
static bool overlaps_itself(const View& v) {
  if (v.numel() < 2) return false;
  for (int i = 0; i < v.ndim; ++i)
    if (v.shape[i] > 1 && v.strides[i] == 0) return true;
  uint8_t order[kMaxDims];
  if (classify(v, order) != LayoutClass::Strided) return false;
  int axes[kMaxDims], n = 0;  // sorted by stride, each must step over all smaller ones
  for (int i = 0; i < v.ndim; ++i)
    if (v.shape[i] > 1) axes[n++] = i;
  std::sort(axes, axes + n, [&](int a, int b) { return std::abs(v.strides[a]) < std::abs(v.strides[b]); });
  int64_t reach = 0;
  for (int k = 0; k < n; ++k) {
    if (std::abs(v.strides[axes[k]]) <= reach) return true;
    reach += std::abs(v.strides[axes[k]]) * (v.shape[axes[k]] - 1);
  }
  return false;
}

void check_write(const Tensor* t) {
  if (t->storage->sharded() && !t->storage->writable())
    fail(ErrorKind::Value,
         "a view of a sharded tensor cannot be written: its elements may lie on other ranks\n  fix: write the tensor "
         "itself "
         "(x.copy_(td.where(mask, new, x))), or work on a clone()");
  if (!t->storage->writable())
    fail(ErrorKind::Value,
         "the tensor's memory is read-only (it came from a read-only array)\n  fix: clone() it before writing");
  if (overlaps_itself(t->view))
    fail(
        ErrorKind::Value,
        "several elements of the tensor share one memory location (it was expanded)\n  fix: clone() it before writing");
  if (t->inference && grad_mode.enabled && !grad_mode.inference)
    fail(ErrorKind::Autograd, "a tensor made in inference mode cannot be written outside it\n  fix: clone() it first");
  if (wants_grad(t)) {
    bool view_of_leaf = t->extra && t->extra->base && reinterpret_cast<Tensor*>(t->extra->base)->is_leaf() &&
                        reinterpret_cast<Tensor*>(t->extra->base)->requires_grad;
    if (t->is_leaf() || view_of_leaf)
      fail(ErrorKind::Autograd, t->is_leaf() ? "a leaf" : "a view of a leaf",
           " that requires grad cannot be written in place: its gradient would be lost"
           "\n  fix: wrap the update in `with td.no_grad():`, or work on x.clone()");
  }
}

void prepare_write(Argument* arguments, int count, int k, int writes, std::vector<TensorRef>& clones) {
  Argument& target = arguments[k];
  if (target.kind != Argument::Kind::Tensor)
    fail(ErrorKind::Type, "an in-place operator needs a tensor to write to, not a number");
  Tensor* t = target.tensor;
  check_write(t);
  Range range = memory_range(t->view);
  for (int i = 0; i < count; ++i) {
    if (i == k || arguments[i].kind != Argument::Kind::Tensor) continue;
    Tensor* other = arguments[i].tensor;
    if (other->storage != t->storage && (other->storage->pending() || t->storage->pending())) continue;
    if (other->storage != t->storage && other->storage->data() != nullptr) {
      // Borrowed memory may be the same bytes under two Storages.
      Range r = memory_range(other->view);
      if (r.high <= range.low || range.high <= r.low) continue;
    }
    // x *= x: reading and writing the same elements is fine, but what is saved for backward must not be overwritten.
    if (i >= writes && same_geometry(other->view, t->view) && !wants_grad(t) && !wants_grad(other)) continue;
    Range r = memory_range(other->view);
    if (r.high <= range.low || range.high <= r.low) continue;
    if (i < writes)
      fail(ErrorKind::Value, "two of the tensors it writes share memory\n  fix: pass a clone() of one of them");
    PyObject* args[] = {reinterpret_cast<PyObject*>(other)};
    PyObject* copy = PyObject_Vectorcall(callbacks.clone, args, 1, nullptr);
    if (!copy) throw PythonError{};
    arguments[i].tensor = reinterpret_cast<Tensor*>(copy);
    clones.push_back(TensorRef::adopt(reinterpret_cast<Tensor*>(copy)));
  }
}

bool all_apart(const Argument* arguments, int count) {
  std::vector<Range> ranges;
  ranges.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    if (arguments[i].kind != Argument::Kind::Tensor) continue;
    if (arguments[i].tensor->storage->pending()) return false;
    ranges.push_back(memory_range(arguments[i].tensor->view));
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.low < b.low; });
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].low < ranges[i - 1].high) return false;
  return true;
}

void note_writes_of(Argument* arguments, int writes) {
  Source now = user_source();
  for (int k = 0; k < writes; ++k) {
    Storage* storage = arguments[k].tensor->storage;
    if (arguments[k].tensor->unwatched)
      storage->bump_unwatched();
    else
      storage->bump_version();
    Source old = std::exchange(storage->mutated_at, now);
    if (k > 0) Py_XINCREF(now.code);
    Py_XDECREF(old.code);
  }
}

void refresh_view_of(Tensor* t) {
  if (t->extra->history_version == t->storage->version()) return;
  auto* base = reinterpret_cast<Tensor*>(t->extra->base);
  if (!base->requires_grad) {
    t->extra->history_version = t->storage->version();
    return;
  }
  PyObject* args[] = {reinterpret_cast<PyObject*>(t)};
  PyObject* done = PyObject_Vectorcall(callbacks.refresh_view, args, 1, nullptr);
  if (!done) throw PythonError{};
  Py_DECREF(done);
  t->extra->history_version = t->storage->version();
}

static void rebase(Tensor* t) {
  if (!t->extra || !t->extra->base) return;
  t->extra->history_version = t->storage->version();
  PyObject* args[] = {reinterpret_cast<PyObject*>(t)};
  PyObject* done = PyObject_Vectorcall(callbacks.rebase, args, 1, nullptr);
  if (!done) throw PythonError{};
  Py_DECREF(done);
}

void set_written_histories(const OpFunction* op, const Plan& plan, PlanNode* node, Argument* arguments) {
  for (int k = 0; k < op->writes; ++k) {
    Tensor* t = arguments[k].tensor;
    if (node && plan.outputs[k].differentiable) {
      set_history(t, node, static_cast<uint32_t>(k));
      rebase(t);
    } else if (grad_mode.enabled && t->history) {  // what it held is overwritten by something that needs no gradient
      set_history(t, nullptr, 0);
      rebase(t);
    }
  }
}

}  // namespace tandem::dispatching
