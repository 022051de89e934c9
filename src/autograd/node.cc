#include "autograd/node.h"

namespace tandem {

// Weak, so that a fuller definition elsewhere takes their place.
__attribute__((weak)) Node::~Node() {
  for (auto& [output, hook] : hooks) Py_XDECREF(hook);
  Py_XDECREF(source.code);
}

__attribute__((weak)) void Node::dispose(Node* first) noexcept {
  thread_local std::vector<Node*>* waiting = nullptr;
  if (waiting) {
    waiting->push_back(first);
    return;
  }
  std::vector<Node*> list{first};
  waiting = &list;
  while (!list.empty()) {
    Node* node = list.back();
    list.pop_back();
    delete node;
  }
  waiting = nullptr;
}

}  // namespace tandem
