#include "tensor/deferred.h"

#include <cstdint>
#include <utility>

namespace tandem {

static Tensor* first_deferred = nullptr;  // GIL

static void track(Tensor* t) {
  if (!PyObject_GC_IsTracked(reinterpret_cast<PyObject*>(t))) PyObject_GC_Track(reinterpret_cast<PyObject*>(t));
}

void note_deferred(Tensor* t) {
  t->next_deferred = first_deferred;
  if (first_deferred) first_deferred->deferred_at = &t->next_deferred;
  t->deferred_at = &first_deferred;
  first_deferred = t;
}

void forget_deferred(Tensor* t) {
  Tensor** at = std::exchange(t->deferred_at, nullptr);
  *at = t->next_deferred;
  if (t->next_deferred) t->next_deferred->deferred_at = at;
}

void resolve_deferred() {
  for (Tensor *t = first_deferred, *next; t; t = next) {
    next = t->next_deferred;
    if (t->storage->pending()) continue;
    t->view.data = t->storage->data() + reinterpret_cast<intptr_t>(t->view.data);
    forget_deferred(t);
    track(t);
  }
}

void track_deferred() {
  for (Tensor* t = first_deferred; t; t = t->next_deferred) track(t);
}

}  // namespace tandem
