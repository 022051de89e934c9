// Backward: walks the tape from the roots in the calling thread, highest sequence number first.
#pragma once
#include <vector>

#include "tensor/node.h"

namespace tandem {

// `inputs` empty: gradients accumulate in the leaves. Otherwise gradients of just these tensors are returned (null
// where the roots do not depend on one), and nothing accumulates.
std::vector<TensorRef> run_backward(const std::vector<Tensor*>& roots, std::vector<TensorRef> grads,
                                    const std::vector<Tensor*>& inputs, bool retain_graph, bool create_graph);

}  // namespace tandem
