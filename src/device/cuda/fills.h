// Small fills in recorded graphs.
#pragma once
#include "device/cuda/driver.h"

namespace tandem::cuda {

// Note [Small fills]
// NVIDIA's libraries fill a few bytes, counters of their kernels, before many products and most convolutions. As a node
// of a graph that is no kernel such a fill keeps an H200 from working for about 5 µs, 0.2 ms of a training step with
// forty of them; a kernel that does the same takes 1 µs. So those nodes are put in the place of the others.
//
// (GIL) May throw, which leaves the graph to be destroyed.
void fill_by_kernels(int device, Graph graph);

}  // namespace tandem::cuda
