#include "device/cuda/fills.h"

#include <vector>

#include "device/cuda/device.h"
#include "device/cuda/own_kernels.h"

namespace tandem::cuda {
namespace {

constexpr int kFillNode = 2;          // CU_GRAPH_NODE_TYPE_MEMSET
constexpr size_t kMostBytes = 16384;  // one block writes them

struct Arguments {  // of that kernel
  Address to;
  uint64_t count, value, element_size;
};

template <class Ask>
std::vector<GraphNode> listed(const Ask& ask, const char* what) {
  size_t count = 0;
  check(ask(nullptr, &count), what);
  std::vector<GraphNode> nodes(count);
  if (count) check(ask(nodes.data(), &count), what);
  return nodes;
}

}  // namespace

void fill_by_kernels(int device, Graph graph) {
  static Function kernels[kMaxDevices];  // (GIL)
  const Driver& d = driver();
  for (GraphNode node : listed([&](GraphNode* to, size_t* n) { return d.graph_nodes(graph, to, n); }, "a graph")) {
    int type = 0;
    check(d.graph_node_type(node, &type), "a graph");
    if (type != kFillNode) continue;
    FillNodeParams fill{};
    check(d.graph_fill_params(node, &fill), "a fill in a graph");
    if (fill.height != 1 || fill.width == 0 || fill.width * fill.element_size > kMostBytes) continue;
    const auto before =
        listed([&](GraphNode* to, size_t* n) { return d.graph_dependencies(node, to, n); }, "a fill in a graph");
    const auto after =
        listed([&](GraphNode* to, size_t* n) { return d.graph_dependents(node, to, n); }, "a fill in a graph");
    if (!kernels[device]) kernels[device] = load_own_kernel(device, "fill");
    Arguments a{fill.to, fill.width, fill.value, fill.element_size};
    void* arguments[] = {&a};
    KernelNodeParams p{};
    p.function = kernels[device];
    p.grid[0] = p.grid[1] = p.grid[2] = 1;
    p.block[0] = fill.width <= 32 ? 32 : 256;
    p.block[1] = p.block[2] = 1;
    p.arguments = arguments;
    GraphNode made = nullptr;
    check(d.graph_add_kernel(&made, graph, before.data(), before.size(), &p), "a fill in a graph");
    const std::vector<GraphNode> from(after.size(), made);
    if (!after.empty())
      check(d.graph_add_dependencies(graph, from.data(), after.data(), after.size()), "a fill in a graph");
    check(d.graph_destroy_node(node), "a fill in a graph");
  }
}

}  // namespace tandem::cuda
