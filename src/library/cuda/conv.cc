// cuda.conv_forward, cuda.conv_backward_data, cuda.conv_backward_weight by cuDNN; operands as in library/conv.cc.
// A bias is added in the same call where cuDNN can do that, otherwise in a second one.
//
// Channels-last where an operand is, else as they lie; weights are brought into the format of the images, which costs
// little beside the convolution. One spatial axis is done as two.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "check.h"
#include "device/cuda/device.h"
#include "device/cuda/launches.h"
#include "device/cuda/own_kernels.h"
#include "fork_guard.h"
#include "library/cuda/conv_plan.h"
#include "library/cuda/open.h"
#include "library/deterministic.h"
#include "library/registry.h"
#include "tensor/device_copy.h"

namespace tandem::library {
namespace {

using Handle = struct CudnnTag*;
using Tensor = struct CudnnTensorTag*;
using Filter = struct CudnnFilterTag*;
using Convolution = struct CudnnConvolutionTag*;
using Activation = struct CudnnActivationTag*;
struct Performance {  // cudnnConvolutionFwdAlgoPerf_t and its two kin
  int algorithm;
  int status;
  float time;
  size_t memory;
  int determinism;
  int math;
  int reserved[3];
};

struct Api {
  int (*create)(Handle*);
  int (*set_stream)(Handle, cuda::Stream);
  int (*tensor_create)(Tensor*);
  int (*tensor_destroy)(Tensor);
  int (*tensor_set)(Tensor, int type, int ndim, const int* shape, const int* strides);
  int (*filter_create)(Filter*);
  int (*filter_set)(Filter, int type, int format, int ndim, const int* shape);
  int (*convolution_create)(Convolution*);
  int (*convolution_set)(Convolution, int ndim, const int* pad, const int* stride, const int* dilation, int mode,
                         int type);
  int (*set_groups)(Convolution, int groups);
  int (*set_math)(Convolution, int math);
  int (*forward_bytes)(Handle, Tensor, Filter, Convolution, Tensor, int, size_t*);
  int (*data_bytes)(Handle, Filter, Tensor, Convolution, Tensor, int, size_t*);
  int (*filter_bytes)(Handle, Tensor, Tensor, Convolution, Filter, int, size_t*);
  int (*find_forward)(Handle, Tensor, const void*, Filter, const void*, Convolution, Tensor, void*, int, int*,
                      Performance*, void*, size_t);
  int (*find_data)(Handle, Filter, const void*, Tensor, const void*, Convolution, Tensor, void*, int, int*,
                   Performance*, void*, size_t);
  int (*find_filter)(Handle, Tensor, const void*, Tensor, const void*, Convolution, Filter, void*, int, int*,
                     Performance*, void*, size_t);
  int (*forward)(Handle, const void*, Tensor, const void*, Filter, const void*, Convolution, int, void*, size_t,
                 const void*, Tensor, void*);
  int (*backward_data)(Handle, const void*, Filter, const void*, Tensor, const void*, Convolution, int, void*, size_t,
                       const void*, Tensor, void*);
  int (*backward_filter)(Handle, const void*, Tensor, const void*, Tensor, const void*, Convolution, int, void*, size_t,
                         const void*, Filter, void*);
  int (*add)(Handle, const void*, Tensor, const void*, const void*, Tensor, void*);
  int (*activation_create)(Activation*);
  int (*activation_set)(Activation, int mode, int nan, double limit);
  int (*activate)(Handle, Activation, const void*, Tensor, const void*, const void*, Tensor, void*);
  const char* (*error)(int);
};

const Api& api() {
  static const Api* made = [] {
    const cuda::LoadFrom load("cudnn");
    auto* a = new Api;
    load(a->create, "cudnnCreate");
    load(a->set_stream, "cudnnSetStream");
    load(a->tensor_create, "cudnnCreateTensorDescriptor");
    load(a->tensor_destroy, "cudnnDestroyTensorDescriptor");
    load(a->tensor_set, "cudnnSetTensorNdDescriptor");
    load(a->filter_create, "cudnnCreateFilterDescriptor");
    load(a->filter_set, "cudnnSetFilterNdDescriptor");
    load(a->convolution_create, "cudnnCreateConvolutionDescriptor");
    load(a->convolution_set, "cudnnSetConvolutionNdDescriptor");
    load(a->set_groups, "cudnnSetConvolutionGroupCount");
    load(a->set_math, "cudnnSetConvolutionMathType");
    load(a->forward_bytes, "cudnnGetConvolutionForwardWorkspaceSize");
    load(a->data_bytes, "cudnnGetConvolutionBackwardDataWorkspaceSize");
    load(a->filter_bytes, "cudnnGetConvolutionBackwardFilterWorkspaceSize");
    load(a->find_forward, "cudnnFindConvolutionForwardAlgorithmEx");
    load(a->find_data, "cudnnFindConvolutionBackwardDataAlgorithmEx");
    load(a->find_filter, "cudnnFindConvolutionBackwardFilterAlgorithmEx");
    load(a->forward, "cudnnConvolutionForward");
    load(a->backward_data, "cudnnConvolutionBackwardData");
    load(a->backward_filter, "cudnnConvolutionBackwardFilter");
    load(a->add, "cudnnAddTensor");
    load(a->activation_create, "cudnnCreateActivationDescriptor");
    load(a->activation_set, "cudnnSetActivationDescriptor");
    load(a->activate, "cudnnActivationForward");
    load(a->error, "cudnnGetErrorString");
    return a;
  }();
  return *made;
}

void check(int status, const char* what) {
  if (status) fail(ErrorKind::Device, "cuDNN: ", what, " failed: ", api().error(status), " (", status, ")");
}

std::mutex cudnn_mutex;  // guards the handles of cuDNN, and what is kept of convolutions
ForkGuard fork_cudnn(cudnn_mutex);

Handle handle(int device, cuda::Stream stream) {
  static Handle made[cuda::kMaxDevices];
  static cuda::Stream set[cuda::kMaxDevices];  // null, the default stream, to begin with
  if (!made[device]) check(api().create(&made[device]), "cudnnCreate");
  if (set[device] != stream) {
    check(api().set_stream(made[device], stream), "cudnnSetStream");
    set[device] = stream;
  }
  return made[device];
}

int data_type(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return 0;
    case DType::Float64:
      return 1;
    case DType::Float16:
      return 2;
    case DType::BFloat16:
      return 9;
    default:
      fail(ErrorKind::Unsupported, "convolution of ", name(dtype), " does not run on CUDA devices");
  }
}

using Kind = ConvolutionKind;

bool is_channels_last(const View& v) {
  if (v.shape[1] == 1) return false;
  int64_t step = v.shape[1];
  if (v.strides[1] != 1) return false;
  for (int i = v.ndim - 1; i >= 2; --i) {
    if (v.shape[i] != 1 && v.strides[i] != step) return false;
    step *= v.shape[i];
  }
  return v.shape[0] == 1 || v.strides[0] == step;
}

void set_strides(View& v, bool last) {
  int64_t step = 1;
  if (last) v.strides[1] = 1, step = v.shape[1];
  for (int i = v.ndim - 1; i >= 2; --i) {
    v.strides[i] = step;
    step *= v.shape[i];
  }
  if (!last) v.strides[1] = step, step *= v.shape[1];
  v.strides[0] = step;
}

bool lies(const View& v, bool last) {
  View wanted = v;
  set_strides(wanted, last);
  for (int i = 0; i < v.ndim; ++i)
    if (v.shape[i] != 1 && v.strides[i] != wanted.strides[i]) return false;
  return true;
}

// An operand in the wanted format: itself or a copy; of results, the place that is copied from afterwards.
struct Formatted {
  View view;
  std::unique_ptr<cuda::Workspace> memory;
};
void format(int device, const View& v, bool last, bool filled, Formatted& out) {
  out.view = v;
  set_strides(out.view, last);
  if (lies(v, last)) return;
  out.memory = std::make_unique<cuda::Workspace>(device, v.numel() * item_size(v.dtype));
  out.view.data = out.memory->data();
  if (filled) cuda::copy_elements(device, v, out.view);
}

// Images of few channels, as of three colours, with zeros for the others up to 8: with so many cuDNN adds a bias in the
// same call, and for fewer it does the same by itself, without the bias. f lies channels-last, in elements of 2 bytes.
constexpr int64_t kFewChannels = 8;
void widen_channels(int device, cuda::Stream stream, Formatted& f) {
  constexpr unsigned kThreads = 256;
  struct {  // what it takes
    const char* from;
    char* to;
    int64_t pixels, channels;
  } p;
  View wide = f.view;
  wide.shape[1] = kFewChannels;
  set_strides(wide, true);
  auto memory = std::make_unique<cuda::Workspace>(device, wide.numel() * item_size(wide.dtype));
  wide.data = memory->data();
  p = {f.view.data, wide.data, wide.numel() / kFewChannels, f.view.shape[1]};
  static cuda::Function kernels[cuda::kMaxDevices];  // (GIL)
  if (!kernels[device]) kernels[device] = cuda::load_own_kernel(device, "widen");
  const auto blocks = static_cast<unsigned>((p.pixels + kThreads - 1) / kThreads);
  cuda::note_launch("widen");
  cuda::check(cuda::launch(device, kernels[device], blocks, {kThreads, 1}, 0, stream, &p), "launching widen");
  f.view = wide;
  f.memory = std::move(memory);
}

// (N, C, L) as (N, C, 1, L)
View with_height(View v) {
  if (v.ndim != 3) return v;
  v.shape[3] = v.shape[2], v.strides[3] = v.strides[2];
  v.shape[2] = 1, v.strides[2] = v.strides[3] * v.shape[3];
  v.ndim = 4;
  return v;
}

struct Entry {
  std::unique_ptr<ConvolutionPlan> plan;  // see Note [Convolution plans]; without one, what follows
  bool chosen = false;
  Tensor x = nullptr, y = nullptr;
  Filter w = nullptr;
  Convolution convolution = nullptr;
  Performance best{};
};
// What distinguishes convolutions.
struct Key {
  int64_t values[32] = {};
  bool operator<(const Key& o) const { return std::memcmp(values, o.values, sizeof values) < 0; }
};

Tensor describe(const View& v) {
  Tensor t = nullptr;
  check(api().tensor_create(&t), "a tensor");
  int shape[5], strides[5];
  for (int i = 0; i < v.ndim; ++i) shape[i] = static_cast<int>(v.shape[i]), strides[i] = static_cast<int>(v.strides[i]);
  check(api().tensor_set(t, data_type(v.dtype), v.ndim, shape, strides), "describing a tensor");
  return t;
}

struct Described {  // for one call
  explicit Described(const View& v) : tensor(describe(v)) {}
  ~Described() { api().tensor_destroy(tensor); }
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;
  const Tensor tensor;
};

ConvolutionShape shape_of_convolution(const Call& call) {
  ConvolutionShape g;
  const int64_t* at = call.ints;
  const int n = static_cast<int>(*at++);
  const int skip = n == 1 ? 1 : 0;
  g.spatial = n + skip;
  if (skip) g.stride[0] = 1, g.pad[0] = 0, g.dilation[0] = 1;
  for (int i = 0; i < n; ++i) {
    g.stride[i + skip] = static_cast<int>(at[i]);
    g.pad[i + skip] = static_cast<int>(at[n + i]);
    TD_CHECK(at[n + i] == at[2 * n + i], "paddings of both ends are equal here");
    g.dilation[i + skip] = static_cast<int>(at[3 * n + i]);
  }
  g.groups = static_cast<int>(at[4 * n]);
  return g;
}

constexpr size_t kMostWorkspace = size_t{1} << 30;
constexpr int kTensorOps = 1, kFma = 3;  // cudnnMathType_t

// Algorithm 1 of each kind is the implicit product, deterministic, for which cuDNN picks a kernel by the device and the
// sizes. Only where it is not supported, all are tried.
bool implicit_product(Handle h, Kind kind, Entry& e) {
  const Api& dnn = api();
  size_t bytes = 0;
  const int status = kind == Kind::Forward ? dnn.forward_bytes(h, e.x, e.w, e.convolution, e.y, 1, &bytes)
                     : kind == Kind::Data  ? dnn.data_bytes(h, e.w, e.y, e.convolution, e.x, 1, &bytes)
                                           : dnn.filter_bytes(h, e.x, e.y, e.convolution, e.w, 1, &bytes);
  if (status != 0 || bytes > kMostWorkspace) return false;
  e.best.algorithm = 1;
  e.best.memory = bytes;
  e.best.math = kTensorOps;
  return true;
}

void choose(int device, Handle h, Kind kind, Entry& e, const View& x, const View& w, const View& y) {
  if (implicit_product(h, kind, e)) return;
  const Api& dnn = api();
  size_t available = 0, total = 0;
  cuda::driver().memory_info(&available, &total);
  const size_t most = std::min(kMostWorkspace, available / 4);
  const cuda::Workspace workspace(device, most);
  Performance found[10];
  int count = 0, status;
  if (kind == Kind::Forward)
    status = dnn.find_forward(h, e.x, x.data, e.w, w.data, e.convolution, e.y, y.data, 10, &count, found,
                              workspace.data(), most);
  else if (kind == Kind::Data)
    status = dnn.find_data(h, e.w, w.data, e.y, y.data, e.convolution, e.x, x.data, 10, &count, found, workspace.data(),
                           most);
  else
    status = dnn.find_filter(h, e.x, x.data, e.y, y.data, e.convolution, e.w, w.data, 10, &count, found,
                             workspace.data(), most);
  check(status, "looking for a convolution algorithm");
  // Of those that give the same result every time: the fastest, or one whose choice hangs on no measurement.
  const Performance* best = nullptr;
  for (int i = 0; i < count; ++i) {
    if (found[i].status != 0 || found[i].determinism == 0) continue;
    if (!best || (deterministic() && found[i].algorithm < best->algorithm)) best = &found[i];
  }
  if (best) return void(e.best = *best);
  fail(ErrorKind::Device, "cuDNN has no deterministic algorithm for this convolution");
}

void choose_algorithm(int device, Handle h, Kind kind, Entry& e, const View& x, const View& w, const View& y,
                      const ConvolutionShape& g, bool last, bool strict) {
  const Api& dnn = api();
  e.x = describe(x);
  e.y = describe(y);
  int shape[5];
  for (int i = 0; i < w.ndim; ++i) shape[i] = static_cast<int>(w.shape[i]);
  check(dnn.filter_create(&e.w), "a filter");
  check(dnn.filter_set(e.w, data_type(w.dtype), last ? 1 : 0, w.ndim, shape), "describing a filter");
  check(dnn.convolution_create(&e.convolution), "a convolution");
  const int type = x.dtype == DType::Float64 ? 1 : 0;
  check(dnn.convolution_set(e.convolution, g.spatial, g.pad, g.stride, g.dilation, 1, type),
        "describing a convolution");
  check(dnn.set_groups(e.convolution, g.groups), "groups");
  check(dnn.set_math(e.convolution, strict ? kFma : kTensorOps), "math");
  choose(device, h, kind, e, x, w, y);
  // The algorithm goes with the math it was found with.
  check(dnn.set_math(e.convolution, strict ? kFma : e.best.math), "math");
  e.chosen = true;
}

void run_algorithm(int device, Handle h, Kind kind, const Entry& e, const View& x, const View& w, const View& y) {
  const Api& dnn = api();
  const cuda::Workspace workspace(device, e.best.memory);
  const float one = 1, zero = 0;
  const double one64 = 1, zero64 = 0;
  const bool f64 = x.dtype == DType::Float64;
  const void* alpha = f64 ? static_cast<const void*>(&one64) : &one;
  const void* beta = f64 ? static_cast<const void*>(&zero64) : &zero;
  const int algorithm = e.best.algorithm;
  if (kind == Kind::Forward)
    check(dnn.forward(h, alpha, e.x, x.data, e.w, w.data, e.convolution, algorithm, workspace.data(), e.best.memory,
                      beta, e.y, y.data),
          "a convolution");
  else if (kind == Kind::Data)
    check(dnn.backward_data(h, alpha, e.w, w.data, e.y, y.data, e.convolution, algorithm, workspace.data(),
                            e.best.memory, beta, e.x, x.data),
          "the gradient of a convolution");
  else
    check(dnn.backward_filter(h, alpha, e.x, x.data, e.y, y.data, e.convolution, algorithm, workspace.data(),
                              e.best.memory, beta, e.w, w.data),
          "the gradient of a convolution");
}

// y += bias
void add_bias(int device, cuda::Stream stream, const View& y, const View& bias) {
  std::lock_guard guard(cudnn_mutex);
  Handle h = handle(device, stream);
  View spread = y;
  for (int i = 0; i < y.ndim; ++i) spread.shape[i] = i == 1 ? bias.shape[0] : 1, spread.strides[i] = 1;
  spread.strides[0] = bias.shape[0];
  const Described a(spread), c(y);
  const float one = 1;
  const double one64 = 1;
  const void* factor = y.dtype == DType::Float64 ? static_cast<const void*>(&one64) : &one;
  check(api().add(h, factor, a.tensor, bias.data, factor, c.tensor, y.data), "adding a bias");
}

// y = relu(y)
void rectify(int device, cuda::Stream stream, const View& y) {
  static Activation activation = nullptr;
  std::lock_guard guard(cudnn_mutex);
  Handle h = handle(device, stream);
  if (!activation) {
    constexpr int kRelu = 1, kPropagateNan = 1;
    check(api().activation_create(&activation), "an activation");
    check(api().activation_set(activation, kRelu, kPropagateNan, 0.0), "describing an activation");
  }
  const Described d(y);
  const float one = 1, zero = 0;
  check(api().activate(h, activation, &one, d.tensor, y.data, &zero, d.tensor, y.data), "relu");
}

// x, w and y lie as cuDNN is told: channels last or not. bias: null, or without gaps; relu: of the biased result. False
// if there is a bias that cuDNN cannot add in the same call, or a relu that it cannot take.
bool convolve(const Call& call, Kind kind, const View& x, const View& w, const View& y, const View* bias, bool relu,
              bool last) {
  const int device = call.device;
  const ConvolutionShape g = shape_of_convolution(call);
  const bool strict = x.dtype == DType::Float32 && !cuda::allow_tf32;
  Key key;
  int64_t* at = key.values;
  for (int64_t v : {int64_t{device}, static_cast<int64_t>(kind), static_cast<int64_t>(x.dtype), int64_t{last},
                    int64_t{cuda::allow_tf32}, int64_t{g.groups}, int64_t{x.ndim},
                    int64_t{bias != nullptr} | int64_t{relu} << 1 | int64_t{deterministic()} << 2})
    *at++ = v;
  for (int i = 0; i < x.ndim; ++i) *at++ = x.shape[i], *at++ = w.shape[i], *at++ = y.shape[i];
  for (int i = 0; i < g.spatial; ++i) *at++ = g.stride[i] | int64_t{g.pad[i]} << 20 | int64_t{g.dilation[i]} << 40;
  static auto* entries = new std::map<Key, Entry>();
  std::lock_guard guard(cudnn_mutex);
  Handle h = handle(device, static_cast<cuda::Stream>(call.stream));
  auto [found, fresh] = entries->try_emplace(key);
  Entry& e = found->second;
  if (fresh) e.plan = make_convolution_plan(h, kind, x, w, y, bias, relu, g, strict, kMostWorkspace);
  const auto low_bits = (reinterpret_cast<uint64_t>(x.data) | reinterpret_cast<uint64_t>(w.data) |
                         reinterpret_cast<uint64_t>(y.data) | reinterpret_cast<uint64_t>(bias ? bias->data : nullptr)) %
                        kPlanAlignment;
  if (e.plan && low_bits == 0) {
    const cuda::Workspace workspace(device, e.plan->workspace);
    check(e.plan->run(h, x.data, w.data, y.data, bias ? bias->data : nullptr, workspace.data()), "a convolution");
    return true;
  }
  if (bias) return false;
  if (!e.chosen) choose_algorithm(device, h, kind, e, x, w, y, g, last, strict);
  run_algorithm(device, h, kind, e, x, w, y);
  return true;
}

void run(const Call& call, Kind kind, bool relu = false) {
  const int device = call.device;
  const View in0 = with_height(call.inputs[0]), in1 = with_height(call.inputs[1]), out = with_height(call.outputs[0]);
  const View& x = kind == Kind::Data ? out : in0;
  const View& w = kind == Kind::Weight ? out : in1;
  const View& y = kind == Kind::Forward ? out : kind == Kind::Data ? in0 : in1;
  if (out.numel() == 0) return;
  const bool last = is_channels_last(x) || is_channels_last(y);
  Formatted fx, fw, fy;
  format(device, x, last, kind != Kind::Data, fx);
  format(device, w, last, kind != Kind::Weight, fw);
  format(device, y, last, kind != Kind::Forward, fy);
  const Formatted& result = kind == Kind::Forward ? fy : kind == Kind::Data ? fx : fw;
  const View* bias = kind == Kind::Forward && call.num_inputs == 3 ? &call.inputs[2] : nullptr;
  View dense;
  std::unique_ptr<cuda::Workspace> dense_memory;
  if (bias && bias->strides[0] != 1 && bias->shape[0] > 1) {
    dense = *bias;
    dense.strides[0] = 1;
    dense_memory = std::make_unique<cuda::Workspace>(device, dense.numel() * item_size(dense.dtype));
    dense.data = dense_memory->data();
    cuda::copy_elements(device, *bias, dense);
    bias = &dense;
  }
  if (bias && last && item_size(x.dtype) == 2 && x.shape[1] < kFewChannels && y.shape[1] % 8 == 0 &&
      w.shape[1] == x.shape[1] && x.numel() && w.numel()) {
    widen_channels(device, static_cast<cuda::Stream>(call.stream), fx);
    widen_channels(device, static_cast<cuda::Stream>(call.stream), fw);
  }
  bool complete = !bias;
  if (x.numel() == 0 || w.numel() == 0 || y.numel() == 0)
    cuda::check(
        cuda::driver().set_bytes(reinterpret_cast<cuda::Address>(result.view.data), 0,
                                 result.view.numel() * item_size(out.dtype), static_cast<cuda::Stream>(call.stream)),
        "zeros");
  else if (!(complete = convolve(call, kind, fx.view, fw.view, fy.view, bias, relu, last)))
    convolve(call, kind, fx.view, fw.view, fy.view, nullptr, false, last);
  if (!complete) {
    add_bias(device, static_cast<cuda::Stream>(call.stream), fy.view, *bias);
    if (relu) rectify(device, static_cast<cuda::Stream>(call.stream), fy.view);
  }
  if (result.memory) cuda::copy_elements(device, result.view, out);
}

const Register forward("cuda.conv_forward", [](const Call& call) { run(call, Kind::Forward); });
const Register forward_relu("cuda.conv_relu", [](const Call& call) { run(call, Kind::Forward, true); });
const Register backward_data("cuda.conv_backward_data", [](const Call& call) { run(call, Kind::Data); });
const Register backward_weight("cuda.conv_backward_weight", [](const Call& call) { run(call, Kind::Weight); });

}  // namespace
}  // namespace tandem::library
