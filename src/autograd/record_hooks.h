// Hooks of records themselves (grad_fn.register_hook), which see all gradients that come in and go out.
#pragma once
#include "tensor/node.h"
#include "tensor/tensor.h"

namespace tandem {

// Where Node::hooks has them: beside those of its outputs.
constexpr uint32_t kBeforeRecord = UINT32_MAX - 1, kAfterRecord = UINT32_MAX;

// What a gradient has to be when a hook has seen it, too: records that wait for it, and rows that it is added to, read
// its memory as that of the one they know.
class GradientKind {
 public:
  explicit GradientKind(const Tensor* grad)
      : view_(grad->view), device_(grad->in_parts ? -1 : grad->storage->device()) {}
  void check(const Tensor* now) const;  // fails where it has another shape or dtype, or is on another device

 private:
  View view_;
  int device_;
};

// The dict of a record's hooks of one kind, or null (borrowed).
PyObject* record_hooks(const Node& node, uint32_t kind);

// The gradients of the outputs after hook(grads) has seen them and perhaps given others.
TensorList run_before_record(PyObject* hooks, TensorList grads);
// The gradients of the inputs after hook(those of the inputs, those of the outputs) has.
TensorList run_after_record(PyObject* hooks, TensorList given, const TensorList& incoming);

}  // namespace tandem
