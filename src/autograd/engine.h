// Backward: walks the tape from the roots in the calling thread, highest sequence number first.
#pragma once
#include <cstdint>
#include <vector>

#include "tensor/node.h"

namespace tandem {

extern constinit thread_local uint64_t backward_number;  // which run of the engine this thread is in, of all there were

// `inputs` empty: gradients accumulate in the leaves. Otherwise gradients of just these tensors are returned (null
// where the roots do not depend on one), and nothing accumulates.
std::vector<TensorRef> run_backward(const std::vector<Tensor*>& roots, std::vector<TensorRef> grads,
                                    const std::vector<Tensor*>& inputs, bool retain_graph, bool create_graph);

// Whether the roots were computed from other leaves that require grad than `inputs` alone.
bool has_other_leaves(const std::vector<Tensor*>& roots, const std::vector<Tensor*>& inputs);

}  // namespace tandem
