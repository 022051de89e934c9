#include "library/cuda/conv_plan.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "library/cuda/open.h"

namespace tandem::library {
namespace {

using Handle = void*;
using RawDescriptor = void*;

// Numbers of cuDNN's documented interface.
enum Kind { kPointwise = 0, kConvolution = 1, kEngine = 2, kEngineConfig = 3, kHeuristics = 4, kExecutionPlan = 5 };
enum OperationKind {
  kForward = 10,
  kBackwardFilter = 11,
  kBackwardData = 12,
  kPointwiseOperation = 13,
  kGraph = 15,
  kVariantPack = 16,
  kTensor = 17
};
enum Type {
  kHandleType = 0,
  kDataType = 1,
  kBoolean = 2,
  kInt64 = 3,
  kFloat = 4,
  kDouble = 5,
  kPointer = 6,
  kConvolutionMode = 7,
  kHeuristicsMode = 8,
  kNanPropagation = 10,
  kNumericalNote = 11,
  kPointwiseMode = 14,
  kDescriptor = 15,
  kBehaviorNote = 19
};
enum Note { kTensorCore = 0, kDownConverts = 1, kNondeterministic = 4, kWinograd = 5 };
constexpr int kRuntimeCompilation = 0;  // a behaviour
constexpr int kModeA = 3, kModeFallback = 2;
constexpr int kAdd = 0, kRelu = 100;  // pointwise modes

struct Api {
  int (*create)(int kind, RawDescriptor*) = nullptr;
  int (*destroy)(RawDescriptor) = nullptr;
  int (*set)(RawDescriptor, int name, int type, int64_t count, const void* values) = nullptr;
  int (*get)(RawDescriptor, int name, int type, int64_t wanted, int64_t* count, void* values) = nullptr;
  int (*finalize)(RawDescriptor) = nullptr;
  int (*execute)(Handle, RawDescriptor plan, RawDescriptor pack) = nullptr;
};

const Api& api() {
  static const Api* made = [] {
    const cuda::LoadFrom load("cudnn");
    auto* a = new Api;
    load(a->create, "cudnnBackendCreateDescriptor");
    load(a->destroy, "cudnnBackendDestroyDescriptor");
    load(a->set, "cudnnBackendSetAttribute");
    load(a->get, "cudnnBackendGetAttribute");
    load(a->finalize, "cudnnBackendFinalize");
    load(a->execute, "cudnnBackendExecute");
    return a;
  }();
  return *made;
}

// Collects whether all went well, so that what is not supported needs no error handling at every line.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int kind) { good_ = api().create(kind, &raw_) == 0; }
  ~Descriptor() {
    if (raw_) api().destroy(raw_);
  }
  Descriptor(Descriptor&& o) noexcept : raw_(std::exchange(o.raw_, nullptr)), good_(o.good_) {}
  Descriptor& operator=(Descriptor&& o) noexcept {
    std::swap(raw_, o.raw_);
    good_ = o.good_;
    return *this;
  }
  void set(int name, int type, const void* values, int64_t count = 1) {
    if (good_) good_ = api().set(raw_, name, type, count, values) == 0;
  }
  void set(int name, const Descriptor& other) {
    good_ = good_ && other.good_;
    set(name, kDescriptor, &other.raw_);
  }
  bool finalize() {
    if (good_) good_ = api().finalize(raw_) == 0;
    return good_;
  }
  RawDescriptor raw() const { return raw_; }
  bool good() const { return good_; }

 private:
  RawDescriptor raw_ = nullptr;
  bool good_ = false;
};

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
      return -1;
  }
}

// Of tensors: the names in a plan. A virtual one is never in memory.
enum Id : int64_t { kX, kW, kY, kBias, kConvolved, kBiased };

Descriptor describe(const View& v, int64_t id, bool is_virtual = false) {
  Descriptor d(kTensor);
  const int type = is_virtual && v.dtype != DType::Float64 ? 0 : data_type(v.dtype);  // computed in float32 at least
  const int64_t alignment = kPlanAlignment;
  d.set(901, kDataType, &type);
  d.set(902, kInt64, v.shape, v.ndim);
  d.set(903, kInt64, v.strides, v.ndim);
  d.set(906, kInt64, &id);
  d.set(900, kInt64, &alignment);
  if (is_virtual) d.set(907, kBoolean, &is_virtual);
  d.finalize();
  return d;
}

struct Notes {
  bool tensor_cores = false, down_converts = false, nondeterministic = false, winograd = false, compiles = false;
};

bool notes_of(RawDescriptor config, Notes& notes) {
  Descriptor engine(kEngine);
  RawDescriptor raw = engine.raw();
  int64_t count = 0;
  if (!engine.good() || api().get(config, 300, kDescriptor, 1, &count, &raw) != 0) return false;
  int numerical[16], behaviour[16];
  int64_t n = 0, b = 0;
  if (api().get(raw, 1303, kNumericalNote, 16, &n, numerical) != 0) return false;
  if (api().get(raw, 1305, kBehaviorNote, 16, &b, behaviour) != 0) return false;
  for (int64_t i = 0; i < n && i < 16; ++i) {
    notes.tensor_cores |= numerical[i] == kTensorCore;
    notes.down_converts |= numerical[i] == kDownConverts;
    notes.nondeterministic |= numerical[i] == kNondeterministic;
    notes.winograd |= numerical[i] == kWinograd;
  }
  for (int64_t i = 0; i < b && i < 16; ++i) notes.compiles |= behaviour[i] == kRuntimeCompilation;
  return true;
}

class Plan final : public ConvolutionPlan {
 public:
  int run(void* handle, void* x, void* w, void* y, void* bias, void* memory) const override {
    const int64_t ids[] = {kX, kW, kY, kBias};
    void* pointers[] = {x, w, y, bias};
    const int64_t count = addition.raw() ? 4 : 3;
    Descriptor pack(kVariantPack);
    pack.set(1000, kInt64, ids, count);
    pack.set(1001, kPointer, pointers, count);
    pack.set(1003, kPointer, &memory);
    constexpr int kInternalError = 4000;
    if (!pack.finalize()) return kInternalError;
    return api().execute(handle, plan.raw(), pack.raw());
  }

  // What the plan was made of must outlive it.
  Descriptor x, w, y, convolution, operation, graph, heuristics;
  Descriptor bias, convolved, pointwise, addition;  // of plans with a bias
  Descriptor biased, relu, rectification;           // and of those that rectify
  std::vector<Descriptor> configs;
  Descriptor plan;
};

Descriptor pointwise(int mode) {
  const int type = 0;
  Descriptor d(kPointwise);
  d.set(0, kPointwiseMode, &mode);
  d.set(1, kDataType, &type);
  if (mode == kRelu) {
    const int propagate = 1;
    d.set(2, kNanPropagation, &propagate);
  }
  d.finalize();
  return d;
}

// What a bias adds to a plan: y = convolved + bias, or the relu of that, in float32.
void add_bias(Plan& p, const View& y, const View& bias, bool relu) {
  View spread = y;
  for (int i = 0; i < y.ndim; ++i) spread.shape[i] = i == 1 ? bias.shape[0] : 1, spread.strides[i] = 1;
  spread.strides[0] = bias.shape[0];
  p.bias = describe(spread, kBias);
  p.convolved = describe(y, kConvolved, true);
  p.pointwise = pointwise(kAdd);
  if (relu) p.biased = describe(y, kBiased, true);
  p.addition = Descriptor(kPointwiseOperation);
  p.addition.set(750, p.pointwise);
  p.addition.set(751, p.convolved);
  p.addition.set(752, p.bias);
  p.addition.set(753, relu ? p.biased : p.y);
  p.addition.finalize();
  if (!relu) return;
  p.relu = pointwise(kRelu);
  p.rectification = Descriptor(kPointwiseOperation);
  p.rectification.set(750, p.relu);
  p.rectification.set(751, p.biased);
  p.rectification.set(753, p.y);
  p.rectification.finalize();
}

// The first configuration of the list that can be used.
bool choose(Handle handle, int mode, bool strict, size_t most, Plan& p) {
  p.heuristics = Descriptor(kHeuristics);
  p.heuristics.set(201, p.graph);
  p.heuristics.set(200, kHeuristicsMode, &mode);
  if (!p.heuristics.finalize()) return false;
  constexpr int kMost = 24;
  p.configs.clear();
  RawDescriptor raw[kMost];
  for (int i = 0; i < kMost; ++i) raw[i] = p.configs.emplace_back(kEngineConfig).raw();
  int64_t count = 0;
  if (api().get(p.heuristics.raw(), 202, kDescriptor, kMost, &count, raw) != 0) return false;
  for (int64_t i = 0; i < count && i < kMost; ++i) {
    Notes notes;
    if (!notes_of(raw[i], notes) || notes.nondeterministic || notes.compiles || notes.down_converts || notes.winograd)
      continue;
    if (strict && notes.tensor_cores) continue;
    Descriptor plan(kExecutionPlan);
    plan.set(400, kHandleType, &handle);
    plan.set(401, p.configs[static_cast<size_t>(i)]);
    int64_t bytes = 0, found = 0;
    if (!plan.finalize() || api().get(plan.raw(), 402, kInt64, 1, &found, &bytes) != 0) continue;
    if (bytes < 0 || static_cast<size_t>(bytes) > most) continue;
    p.plan = std::move(plan);
    p.workspace = static_cast<size_t>(bytes);
    return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<ConvolutionPlan> make_convolution_plan(void* handle, ConvolutionKind kind, const View& x, const View& w,
                                                       const View& y, const View* bias, bool relu,
                                                       const ConvolutionShape& geometry, bool strict,
                                                       size_t most_workspace) {
  if (data_type(x.dtype) < 0 || (bias && x.dtype == DType::Float64)) return nullptr;
  auto p = std::make_unique<Plan>();
  p->x = describe(x, kX);
  p->w = describe(w, kW);
  p->y = describe(y, kY);
  if (bias) add_bias(*p, y, *bias, relu);
  int64_t stride[3], pad[3], dilation[3];
  for (int i = 0; i < geometry.spatial; ++i)
    stride[i] = geometry.stride[i], pad[i] = geometry.pad[i], dilation[i] = geometry.dilation[i];
  const bool f64 = x.dtype == DType::Float64;
  const int type = f64 ? 1 : 0, correlation = 1;
  const int64_t spatial = geometry.spatial;
  p->convolution = Descriptor(kConvolution);
  p->convolution.set(100, kDataType, &type);
  p->convolution.set(101, kConvolutionMode, &correlation);
  p->convolution.set(102, kInt64, dilation, spatial);
  p->convolution.set(103, kInt64, stride, spatial);
  p->convolution.set(104, kInt64, pad, spatial);
  p->convolution.set(105, kInt64, pad, spatial);
  p->convolution.set(106, kInt64, &spatial);
  p->convolution.finalize();
  // Attributes of an operation: alpha, beta, the convolution, and w, x, y in the order of each kind.
  struct Names {
    int kind, alpha, x, w, y;
  };
  const Names n = kind == ConvolutionKind::Forward ? Names{kForward, 700, 704, 703, 705}
                  : kind == ConvolutionKind::Data  ? Names{kBackwardData, 706, 710, 709, 711}
                                                   : Names{kBackwardFilter, 712, 716, 715, 717};
  const float one = 1, zero = 0;
  const double one64 = 1, zero64 = 0;
  p->operation = Descriptor(n.kind);
  p->operation.set(n.alpha, f64 ? kDouble : kFloat, f64 ? static_cast<const void*>(&one64) : &one);
  p->operation.set(n.alpha + 1, f64 ? kDouble : kFloat, f64 ? static_cast<const void*>(&zero64) : &zero);
  p->operation.set(n.alpha + 2, p->convolution);
  p->operation.set(n.x, p->x);
  p->operation.set(n.w, p->w);
  p->operation.set(n.y, bias ? p->convolved : p->y);
  p->operation.finalize();
  p->graph = Descriptor(kGraph);
  if (!p->operation.good() || (bias && !p->addition.good()) || (relu && !p->rectification.good())) return nullptr;
  const RawDescriptor operations[] = {p->operation.raw(), p->addition.raw(), p->rectification.raw()};
  p->graph.set(801, kDescriptor, operations, relu ? 3 : bias ? 2 : 1);
  p->graph.set(800, kHandleType, &handle);
  if (!p->graph.finalize()) return nullptr;
  if (!choose(handle, kModeA, strict, most_workspace, *p) && !choose(handle, kModeFallback, strict, most_workspace, *p))
    return nullptr;
  return p;
}

}  // namespace tandem::library
