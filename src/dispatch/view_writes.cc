#include "dispatch/view_writes.h"

#include "autograd/record.h"
#include "dispatch/writes.h"
#include "known_source.h"
#include "modes.h"

namespace tandem::dispatching {

// Note [Captured view writes]
// Deferred tensors have no memory yet, so a write through a view (out[:, :n] = x, h[0] += 1) becomes a call that makes
// another base: what it was, with the elements that the view shows replaced. Views of the base, the written one too,
// are then selected from it again where they are used. Gradients follow from these calls. Bodies always do so: nothing
// else can be described. A compiled function does where that is cheap; otherwise it writes memory, and a new segment
// begins (Capture::replaces).

namespace {

Tensor* base_of(const Tensor* t) {
  return t->extra ? reinterpret_cast<Tensor*>(t->extra->base) : nullptr;
}

TensorRef call(PyObject* function, std::initializer_list<Tensor*> tensors) {
  PyObject* args[3];
  size_t n = 0;
  for (Tensor* t : tensors) args[n++] = reinterpret_cast<PyObject*>(t);
  PyObject* made = PyObject_Vectorcall(function, args, n, nullptr);
  if (!made) throw PythonError{};
  return TensorRef::adopt(reinterpret_cast<Tensor*>(made));
}

}  // namespace

bool writes_deferred_view(const OpFunction* op, const Argument* arguments, int count) {
  if (op->writes != 1 || count == 0 || arguments[0].kind != Argument::Kind::Tensor) return false;
  const Tensor* view = arguments[0].tensor;
  const Tensor* base = base_of(view);
  if (!base || base->storage != view->storage || view->unwatched || view->inference || base->inference) return false;
  if (base->requires_grad && base->is_leaf() && grad_mode.enabled) return false;  // an error, raised as ever
  return active_capture->replaces(view, base);
}

TensorList write_deferred_view(OpFunction* op, Argument* arguments, int count, bool* returns_tuple) {
  check_write(arguments[0].tensor);
  const KnownSource here;
  const TensorRef view = TensorRef::share(arguments[0].tensor);
  const TensorRef base = TensorRef::share(base_of(view.get()));
  active_capture->note_replacement(base->storage);
  const TensorRef copy = call(callbacks.clone, {view.get()});
  arguments[0].tensor = copy.get();
  TensorList outputs = dispatch(op, arguments, count, returns_tuple);
  arguments[0].tensor = view.get();
  call(callbacks.put_view, {base.get(), view.get(), copy.get()});
  if (active_capture) reread_view(active_capture, view.get());
  outputs[0] = view;
  return outputs;
}

void reread_view(Capture* capture, Tensor* view) {
  Tensor* base = base_of(view);
  if (!base || base->storage != view->storage || !view->storage->pending()) return;
  // Another view of this geometry may be known already; the history is this one's own.
  const bool is_current = view->extra->history_version == view->storage->version() || !base->requires_grad;
  if ((capture->knows(view) && is_current) || !capture->knows(base)) return;
  struct Recorded {  // whoever reads it next may want gradients
    GradMode before = grad_mode;
    Recorded() { grad_mode.enabled = true; }
    ~Recorded() { grad_mode = before; }
  } recorded;
  const TensorRef shown = call(callbacks.select_view, {base, view});
  if (!capture->knows(view)) capture->remember_as(view, shown.get());
  if (shown->requires_grad) set_history(view, shown->history, shown->output_index);
  view->extra->history_version = view->storage->version();
}

}  // namespace tandem::dispatching
