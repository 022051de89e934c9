#include "tensor/promised.h"

#include <cstdint>
#include <utility>

namespace tandem {

static Tensor* first_promised = nullptr;  // GIL

void note_promised(Tensor* t) {
  t->next_promised = first_promised;
  if (first_promised) first_promised->promised_at = &t->next_promised;
  t->promised_at = &first_promised;
  first_promised = t;
}

void forget_promised(Tensor* t) {
  Tensor** at = std::exchange(t->promised_at, nullptr);
  *at = t->next_promised;
  if (t->next_promised) t->next_promised->promised_at = at;
}

void resolve_promises() {
  for (Tensor *t = first_promised, *next; t; t = next) {
    next = t->next_promised;
    if (t->storage->pending()) continue;
    t->view.data = t->storage->data() + reinterpret_cast<intptr_t>(t->view.data);
    forget_promised(t);
  }
}

}  // namespace tandem
