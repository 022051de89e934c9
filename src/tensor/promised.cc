#include "tensor/promised.h"

#include <cstdint>
#include <unordered_set>

namespace tandem {

namespace {
std::unordered_set<Tensor*>& promised() {  // GIL
  static auto* set = new std::unordered_set<Tensor*>();
  return *set;
}
}  // namespace

void note_promised(Tensor* t) {
  promised().insert(t);
}
void forget_promised(Tensor* t) {
  promised().erase(t);
}

void resolve_promises() {
  auto& set = promised();
  for (auto it = set.begin(); it != set.end();) {
    Tensor* t = *it;
    if (t->storage->pending()) {
      ++it;
      continue;
    }
    t->view.data = t->storage->data() + reinterpret_cast<intptr_t>(t->view.data);
    it = set.erase(it);
  }
}

}  // namespace tandem
