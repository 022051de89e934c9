// The CUDA driver, opened at run time: nothing of CUDA is needed to build or to import Tandem.
//
// The few declarations below are our own; names and numbers are those of NVIDIA's documented, stable C interface.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace tandem::cuda {

using Status = int;  // CUresult; 0 is success
using DeviceHandle = int;
using Address = unsigned long long;  // CUdeviceptr
using Context = struct ContextTag*;
using Stream = struct StreamTag*;  // null: the default stream
using Event = struct EventTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Graph = struct GraphTag*;
using GraphNode = struct GraphNodeTag*;
using GraphExec = struct GraphExecTag*;

struct KernelNodeParams {  // CUDA_KERNEL_NODE_PARAMS_v2
  Function function;
  unsigned grid[3], block[3], shared_bytes;
  void** arguments;
  void** extra;
  void* kernel;
  Context context;
};

struct LaunchAttribute {  // CUlaunchAttribute
  int id;
  char padding[4];
  union {
    int number;
    char bytes[64];
  };
};
struct LaunchConfig {  // CUlaunchConfig
  unsigned grid[3], block[3], shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};
struct FillNodeParams {  // CUDA_MEMSET_NODE_PARAMS
  Address to;
  size_t pitch;
  unsigned value, element_size;
  size_t width, height;
};

inline constexpr Status kOutOfMemory = 2, kNotReady = 600;

// name, symbol in libcuda.so.1, parameters
#define TD_CUDA_FUNCTIONS(X)                                                                                           \
  X(init, "cuInit", (unsigned flags))                                                                                  \
  X(driver_version, "cuDriverGetVersion", (int* version))                                                              \
  X(error_name, "cuGetErrorName", (Status status, const char** text))                                                  \
  X(error_string, "cuGetErrorString", (Status status, const char** text))                                              \
  X(device_count, "cuDeviceGetCount", (int* count))                                                                    \
  X(device_get, "cuDeviceGet", (DeviceHandle * device, int ordinal))                                                   \
  X(device_name, "cuDeviceGetName", (char* name, int size, DeviceHandle device))                                       \
  X(device_attribute, "cuDeviceGetAttribute", (int* value, int attribute, DeviceHandle device))                        \
  X(device_memory, "cuDeviceTotalMem_v2", (size_t* bytes, DeviceHandle device))                                        \
  X(retain_context, "cuDevicePrimaryCtxRetain", (Context * context, DeviceHandle device))                              \
  X(set_context, "cuCtxSetCurrent", (Context context))                                                                 \
  X(synchronize_context, "cuCtxSynchronize", ())                                                                       \
  X(allocate, "cuMemAlloc_v2", (Address * address, size_t bytes))                                                      \
  X(free, "cuMemFree_v2", (Address address))                                                                           \
  X(memory_info, "cuMemGetInfo_v2", (size_t* free, size_t* total))                                                     \
  X(host_allocate, "cuMemHostAlloc", (void** address, size_t bytes, unsigned flags))                                   \
  X(host_free, "cuMemFreeHost", (void* address))                                                                       \
  X(host_device_address, "cuMemHostGetDevicePointer_v2", (Address * device, void* host, unsigned flags))               \
  X(copy_to_device, "cuMemcpyHtoDAsync_v2", (Address to, const void* from, size_t bytes, Stream stream))               \
  X(copy_to_host, "cuMemcpyDtoHAsync_v2", (void* to, Address from, size_t bytes, Stream stream))                       \
  X(copy_on_device, "cuMemcpyDtoDAsync_v2", (Address to, Address from, size_t bytes, Stream stream))                   \
  X(copy_any, "cuMemcpyAsync", (Address to, Address from, size_t bytes, Stream stream))                                \
  X(set_bytes, "cuMemsetD8Async", (Address to, unsigned char value, size_t bytes, Stream stream))                      \
  X(stream_create, "cuStreamCreateWithPriority", (Stream * stream, unsigned flags, int priority))                      \
  X(stream_destroy, "cuStreamDestroy_v2", (Stream stream))                                                             \
  X(stream_synchronize, "cuStreamSynchronize", (Stream stream))                                                        \
  X(stream_query, "cuStreamQuery", (Stream stream))                                                                    \
  X(stream_wait_event, "cuStreamWaitEvent", (Stream stream, Event event, unsigned flags))                              \
  X(event_create, "cuEventCreate", (Event * event, unsigned flags))                                                    \
  X(event_destroy, "cuEventDestroy_v2", (Event event))                                                                 \
  X(event_record, "cuEventRecord", (Event event, Stream stream))                                                       \
  X(event_query, "cuEventQuery", (Event event))                                                                        \
  X(event_synchronize, "cuEventSynchronize", (Event event))                                                            \
  X(event_elapsed, "cuEventElapsedTime", (float* milliseconds, Event start, Event end))                                \
  X(module_load, "cuModuleLoadData", (Module * module, const void* image))                                             \
  X(module_function, "cuModuleGetFunction", (Function * function, Module module, const char* name))                    \
  X(function_attribute, "cuFuncSetAttribute", (Function function, int attribute, int value))                           \
  X(launch, "cuLaunchKernel",                                                                                          \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,         \
     unsigned block_z, unsigned shared_bytes, Stream stream, void** arguments, void** extra))                          \
  X(launch_with, "cuLaunchKernelEx", (const LaunchConfig* config, Function function, void** arguments, void** extra))  \
  X(begin_capture, "cuStreamBeginCapture_v2", (Stream stream, int mode))                                               \
  X(end_capture, "cuStreamEndCapture", (Stream stream, Graph * graph))                                                 \
  X(capture_info, "cuStreamGetCaptureInfo_v2",                                                                         \
    (Stream stream, int* status, unsigned long long* id, Graph* graph, const GraphNode** dependencies, size_t* count)) \
  X(graph_create, "cuGraphCreate", (Graph * graph, unsigned flags))                                                    \
  X(instantiate, "cuGraphInstantiateWithFlags", (GraphExec * executable, Graph graph, unsigned long long flags))       \
  X(graph_launch, "cuGraphLaunch", (GraphExec executable, Stream stream))                                              \
  X(graph_set_kernel, "cuGraphExecKernelNodeSetParams_v2",                                                             \
    (GraphExec executable, GraphNode node, const KernelNodeParams* parameters))                                        \
  X(graph_nodes, "cuGraphGetNodes", (Graph graph, GraphNode * nodes, size_t* count))                                   \
  X(graph_node_type, "cuGraphNodeGetType", (GraphNode node, int* type))                                                \
  X(graph_fill_params, "cuGraphMemsetNodeGetParams", (GraphNode node, FillNodeParams * parameters))                    \
  X(graph_dependencies, "cuGraphNodeGetDependencies", (GraphNode node, GraphNode * nodes, size_t* count))              \
  X(graph_dependents, "cuGraphNodeGetDependentNodes", (GraphNode node, GraphNode * nodes, size_t* count))              \
  X(graph_add_kernel, "cuGraphAddKernelNode_v2",                                                                       \
    (GraphNode * node, Graph graph, const GraphNode* dependencies, size_t count, const KernelNodeParams* parameters))  \
  X(graph_add_dependencies, "cuGraphAddDependencies",                                                                  \
    (Graph graph, const GraphNode* from, const GraphNode* to, size_t count))                                           \
  X(graph_destroy_node, "cuGraphDestroyNode", (GraphNode node))                                                        \
  X(graph_destroy, "cuGraphDestroy", (Graph graph))                                                                    \
  X(graph_exec_destroy, "cuGraphExecDestroy", (GraphExec executable))

struct Driver {
#define TD_DECLARE(name, symbol, parameters) Status(*name) parameters = nullptr;
  TD_CUDA_FUNCTIONS(TD_DECLARE)
#undef TD_DECLARE
};

// The driver, opened and initialised once; launches that were handed over are with it (launcher.h). Throws
// Error(Device) saying exactly what is missing, too old or refused.
const Driver& driver();

// Empty if there is a driver that works and at least one device; else why not. Touches no device memory.
std::string why_unavailable();

[[noreturn]] void fail_status(Status status, const char* what);
inline void check(Status status, const char* what) {
  if (status != 0) [[unlikely]]
    fail_status(status, what);
}

}  // namespace tandem::cuda
