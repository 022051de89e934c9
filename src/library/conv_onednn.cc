// Convolutions by oneDNN: float32, and 16-bit floats where the CPU has them.
#include <algorithm>
#include <utility>
#include <vector>

#include "check.h"
#include "library/conv_impl.h"
#include "library/layout.h"
#include "library/onednn.h"
#include "library/registry.h"
#include "library/scratch.h"
#include "library/strided.h"

namespace tandem::library {
#ifdef TANDEM_ONEDNN
namespace {

using namespace onednn;

// One tensor of the primitive: as the caller has it, and as the primitive wants it.
struct Tensor {
  size_t bytes = 0;                     // of the primitive's own layout; 0 where it is the caller's
  std::unique_ptr<Executable> reorder;  // into the primitive's layout for inputs, out of it for the result
};

struct ConvProgram : Program {
  std::unique_ptr<Executable> conv;
  Tensor x, w, y;
  Desc packed;  // layout of the weights, where these are reordered
  bool supported = true;
};

// Weights that never change, in the layouts that primitives asked for: another batch may want another one.
struct KeptWeights : Kept {
  struct Packed {
    Desc layout;
    Scratch<char> memory;
  };
  std::vector<std::unique_ptr<Packed>> all;
};

char* kept_weights(ConvProgram& program, const View& w, std::unique_ptr<Kept>& place) {
  auto& all = kept_by<KeptConv>(place, [] { return std::make_unique<KeptConv>(); });
  auto& kept = kept_by<KeptWeights>(all.onednn, [] { return std::make_unique<KeptWeights>(); });
  const std::lock_guard lock(keeping());
  for (const auto& packed : kept.all)
    if (api()->dnnl_memory_desc_equal(packed->layout.get(), program.packed.get())) return packed->memory.data();
  auto packed = std::make_unique<KeptWeights::Packed>();
  packed->layout = copy(program.packed.get());
  const ScratchPool pool = std::exchange(scratch_pool, {});  // it outlives the call
  packed->memory.resize(program.w.bytes);
  scratch_pool = pool;
  program.w.reorder->run({w.data, packed->memory.data()});
  kept.all.push_back(std::move(packed));
  return kept.all.back()->memory.data();
}

struct PostOps {
  dnnl_alg_kind_t kind;
  float alpha, beta;
};
PostOps post_op(const Conv& conv) {
  switch (conv.activation) {
    case Activation::Relu:
      return {dnnl_eltwise_relu, 0, 0};
    case Activation::Clip:
      return {dnnl_eltwise_clip, conv.alpha, conv.beta};
    case Activation::Silu:
      return {dnnl_eltwise_swish, 1, 0};
    case Activation::Sigmoid:
      return {dnnl_eltwise_logistic, 0, 0};
    case Activation::HardSwish:
      return {dnnl_eltwise_hardswish, 1.0f / 6, 0.5f};
    case Activation::LeakyRelu:
      return {dnnl_eltwise_relu, conv.alpha, 0};
    default:
      return {dnnl_eltwise_gelu_erf, 0, 0};
  }
}

std::unique_ptr<Executable> make_reorder(const_dnnl_memory_desc_t from, const_dnnl_memory_desc_t to) {
  auto reorder = std::make_unique<Executable>(
      [&](dnnl_primitive_desc_t* desc, const_dnnl_primitive_attr_t attr) {
        return api()->dnnl_reorder_primitive_desc_create(desc, from, engine(), to, engine(), attr);
      },
      "reorder");
  reorder->bind(DNNL_ARG_FROM, from);
  reorder->bind(DNNL_ARG_TO, to);
  return reorder;
}

// With groups the weights get an axis more: (groups, O / groups, C / groups, spatial...).
struct Shape {
  int ndim = 0;
  int64_t shape[kMaxDims], strides[kMaxDims];
};
Shape shape_of(const View& view, int64_t groups) {
  Shape s;
  if (groups > 1) {
    s.shape[0] = groups, s.strides[0] = view.strides[0] * (view.shape[0] / groups);
    s.shape[1] = view.shape[0] / groups, s.strides[1] = view.strides[0];
    s.ndim = 2;
  } else {
    s.shape[0] = view.shape[0], s.strides[0] = view.strides[0];
    s.ndim = 1;
  }
  for (int d = 1; d < view.ndim; ++d) s.shape[s.ndim] = view.shape[d], s.strides[s.ndim] = view.strides[d], ++s.ndim;
  return s;
}

Key key_of(const Conv& conv, bool last) {
  const Geometry& g = conv.geometry;
  Key key;
  key.add(2 + static_cast<int>(conv.kind));
  key.add(((static_cast<int64_t>(conv.x.dtype) * 2 + (conv.bias != nullptr)) * 2 + last) * 4 + g.spatial);
  key.add(team_size());
  for (const int64_t word : {g.batch, g.in_channels, g.out_channels, g.groups}) key.add(word);
  for (const auto* list : {g.in, g.out, g.kernel, g.stride, g.pad_low, g.pad_high, g.dilation}) key.add(list, 3);
  for (const View* view : {&conv.x, &conv.w, &conv.y}) key.add(view->strides, view->ndim);
  key.add((conv.fused ? 2 : 0) + (conv.residual ? 1 : 0));
  if (conv.fused) {
    int32_t numbers[2];
    std::memcpy(numbers, &conv.alpha, sizeof(float)), std::memcpy(numbers + 1, &conv.beta, sizeof(float));
    for (const int64_t word : {static_cast<int64_t>(conv.activation), int64_t{numbers[0]}, int64_t{numbers[1]}})
      key.add(word);
  }
  return key;
}

// `last`: activations are channels-last and used where they are. Otherwise oneDNN chooses layouts and we reorder.
std::unique_ptr<Program> make(const Conv& conv, bool last) {
  const Geometry& g = conv.geometry;
  const int nd = g.spatial + 2, skip = 3 - g.spatial;
  const Shape weights = shape_of(conv.w, g.groups);
  const DType dtype = conv.x.dtype;
  const Desc user_x = describe(dtype, nd, conv.x.shape, conv.x.strides),
             user_y = describe(dtype, nd, conv.y.shape, conv.y.strides);
  const Desc user_w = describe(dtype, weights.ndim, weights.shape, weights.strides);
  const Desc x = last ? copy(user_x.get()) : describe_any(dtype, nd, conv.x.shape);
  const Desc y = last ? copy(user_y.get()) : describe_any(dtype, nd, conv.y.shape);
  const Desc w = describe_any(dtype, weights.ndim, weights.shape);
  Desc bias;
  const int64_t one = 1;
  if (conv.bias) bias = describe(dtype, 1, &g.out_channels, &one);

  dnnl_dims_t dilation;
  for (int d = 0; d < g.spatial; ++d) dilation[d] = g.dilation[skip + d] - 1;
  const auto forward = [&](dnnl_primitive_desc_t* desc, const_dnnl_primitive_attr_t attr) {
    return api()->dnnl_convolution_forward_primitive_desc_create(
        desc, engine(), conv.fused ? dnnl_forward_inference : dnnl_forward_training, dnnl_convolution_direct, x.get(),
        w.get(), bias.get(), y.get(), g.stride + skip, dilation, g.pad_low + skip, g.pad_high + skip, attr);
  };
  auto program = std::make_unique<ConvProgram>();
  dnnl_status_t status = dnnl_success;
  dnnl_primitive_desc_t hint = nullptr;
  if (conv.kind != ConvKind::Forward && (status = forward(&hint, nullptr)) != dnnl_success) {
    program->supported = false;
    return program;
  }
  const Handle<dnnl_primitive_desc_t> hint_owner(hint);
  Handle<dnnl_post_ops_t> after;
  if (conv.residual || conv.activation != Activation::None) {
    dnnl_post_ops_t made;
    check(api()->dnnl_post_ops_create(&made), "post-operations");
    after.reset(made);
    if (conv.residual)
      check(api()->dnnl_post_ops_append_binary(made, dnnl_binary_add, last ? user_y.get() : y.get()), "addition");
    const PostOps op = post_op(conv);
    if (conv.activation != Activation::None)
      check(api()->dnnl_post_ops_append_eltwise(made, op.kind, op.alpha, op.beta), "activation");
  }
  try {
    program->conv = std::make_unique<Executable>(
        [&](dnnl_primitive_desc_t* desc, const_dnnl_primitive_attr_t attr) {
          switch (conv.kind) {
            case ConvKind::Forward:
              return status = forward(desc, attr);
            case ConvKind::BackwardData:
              return status = api()->dnnl_convolution_backward_data_primitive_desc_create(
                         desc, engine(), dnnl_convolution_direct, x.get(), w.get(), y.get(), g.stride + skip, dilation,
                         g.pad_low + skip, g.pad_high + skip, hint, attr);
            default:
              return status = api()->dnnl_convolution_backward_weights_primitive_desc_create(
                         desc, engine(), dnnl_convolution_direct, x.get(), w.get(), nullptr, y.get(), g.stride + skip,
                         dilation, g.pad_low + skip, g.pad_high + skip, hint, attr);
          }
        },
        "convolution", after.get());
  } catch (const Error&) {
    if (status != dnnl_unimplemented && status != dnnl_invalid_arguments) throw;
    program->supported = false;  // ours will do it; remembered, so that it is not tried again
    return program;
  }

  Executable& run = *program->conv;
  const auto prepare = [](Tensor& tensor, const_dnnl_memory_desc_t user, const_dnnl_memory_desc_t wanted,
                          bool is_result) {
    if (api()->dnnl_memory_desc_equal(user, wanted)) return;
    tensor.bytes = api()->dnnl_memory_desc_get_size(wanted);
    tensor.reorder = is_result ? make_reorder(wanted, user) : make_reorder(user, wanted);
  };
  const auto bind = [&](Tensor& tensor, int argument, const_dnnl_memory_desc_t user, dnnl_query_t query,
                        bool is_result) {
    const auto wanted = run.query(query);
    run.bind(argument, wanted);
    prepare(tensor, user, wanted, is_result);
  };
  switch (conv.kind) {
    case ConvKind::Forward:
      bind(program->x, DNNL_ARG_SRC, user_x.get(), dnnl_query_src_md, false);
      bind(program->w, DNNL_ARG_WEIGHTS, user_w.get(), dnnl_query_weights_md, false);
      bind(program->y, DNNL_ARG_DST, user_y.get(), dnnl_query_dst_md, true);
      if (conv.bias) run.bind(DNNL_ARG_BIAS, bias.get());
      if (conv.residual) run.bind(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, user_y.get());
      if (program->w.reorder) program->packed = copy(run.query(dnnl_query_weights_md));
      break;
    case ConvKind::BackwardData:
      bind(program->x, DNNL_ARG_DIFF_SRC, user_x.get(), dnnl_query_diff_src_md, true);
      bind(program->w, DNNL_ARG_WEIGHTS, user_w.get(), dnnl_query_weights_md, false);
      bind(program->y, DNNL_ARG_DIFF_DST, user_y.get(), dnnl_query_diff_dst_md, false);
      break;
    case ConvKind::BackwardWeight:
      bind(program->x, DNNL_ARG_SRC, user_x.get(), dnnl_query_src_md, false);
      bind(program->w, DNNL_ARG_DIFF_WEIGHTS, user_w.get(), dnnl_query_diff_weights_md, true);
      bind(program->y, DNNL_ARG_DIFF_DST, user_y.get(), dnnl_query_diff_dst_md, false);
      break;
  }
  return program;
}

bool run(const Conv& conv, bool last, const char* bias) {
  auto* found = static_cast<ConvProgram*>(cached(key_of(conv, last), [&] { return make(conv, last); }));
  if (!found) return true;
  ConvProgram& program = *found;
  if (!program.supported) return false;
  if (measuring()) {
    size_t most = program.conv->scratch();
    for (const Tensor* tensor : {&program.x, &program.w, &program.y}) {
      if (!tensor->reorder) continue;
      need_scratch(tensor->bytes);
      most = std::max(most, tensor->reorder->scratch());
    }
    need_scratch(most);
    return true;
  }
  const ConvKind kind = conv.kind;
  Scratch<char> memory[3];
  const auto enter = [&](Tensor& tensor, Scratch<char>& own, char* data, bool is_result) {
    if (!tensor.reorder) return data;
    own.resize(tensor.bytes);
    if (!is_result) tensor.reorder->run({data, own.data()});
    return own.data();
  };
  char* x = enter(program.x, memory[0], conv.x.data, kind == ConvKind::BackwardData);
  char* w = conv.kept && program.w.reorder ? kept_weights(program, conv.w, *conv.kept)
                                           : enter(program.w, memory[1], conv.w.data, kind == ConvKind::BackwardWeight);
  char* y = enter(program.y, memory[2], conv.y.data, kind == ConvKind::Forward);
  void* operands[5] = {x, w, y};
  size_t count = 3;
  if (bias) operands[count++] = const_cast<char*>(bias);
  if (conv.residual) operands[count++] = conv.residual->data;
  program.conv->run(operands, count);
  if (kind == ConvKind::Forward && program.y.reorder) program.y.reorder->run({y, conv.y.data});
  if (kind == ConvKind::BackwardData && program.x.reorder) program.x.reorder->run({x, conv.x.data});
  if (kind == ConvKind::BackwardWeight && program.w.reorder) program.w.reorder->run({w, conv.w.data});
  return true;
}

}  // namespace

bool conv_onednn(const Conv& conv, bool last) {
  const DType dtype = conv.x.dtype;
  if (dtype != DType::Float32 && dtype != DType::BFloat16 && dtype != DType::Float16) return false;
  if (!api()) return false;
  if (dtype == DType::BFloat16 ? !has_bfloat16() : dtype == DType::Float16 ? !has_float16() : false) return false;
  const Geometry& g = conv.geometry;
  for (int d = 0; d < 3; ++d)
    if (g.pad_low[d] < 0 || g.pad_high[d] < 0) return false;

  // One layout for both activations: a tensor in another one is copied.
  const auto fits = [last](const View& v) { return last ? is_channels_last(v) : is_channels_first(v); };
  Conv plain = conv;
  Scratch<char> memory[5];
  const auto settle = [&](View& view, Scratch<char>& own, bool is_result, bool fit) {
    const View original = view;
    if (fit) {  // canonical strides for axes of one element too: oneDNN compares them
      if (last && &view != &plain.w)
        set_channels_last(view);
      else if (view.is_contiguous())
        set_contiguous(view);
      return;
    }
    const size_t bytes = view.numel() * item_size(dtype);
    preparing() ? need_scratch(bytes) : own.resize(bytes);
    view.data = own.data();
    if (last && &view != &plain.w)
      set_channels_last(view);
    else
      set_contiguous(view);
    if (!is_result && !preparing()) copy_elements(original, view);
  };
  settle(plain.x, memory[0], conv.kind == ConvKind::BackwardData, fits(conv.x));
  settle(plain.y, memory[1], conv.kind == ConvKind::Forward, fits(conv.y));
  View residual;
  if (conv.residual) {
    residual = *conv.residual;
    settle(residual, memory[4], false, fits(residual));
    plain.residual = &residual;
  }
  settle(plain.w, memory[2], conv.kind == ConvKind::BackwardWeight,
         is_channels_first(conv.w) || is_channels_last(conv.w));
  const char* bias = nullptr;
  if (conv.bias) {
    View line = *conv.bias;
    if (!line.is_contiguous() && !preparing()) {
      memory[3].resize(line.numel() * item_size(dtype));
      line.data = memory[3].data();
      set_contiguous(line);
      copy_elements(*conv.bias, line);
    }
    bias = line.data;
  }
  if (!run(plain, last, bias)) return false;
  if (preparing()) return true;
  if (conv.kind == ConvKind::Forward && plain.y.data != conv.y.data) copy_elements(plain.y, conv.y);
  if (conv.kind == ConvKind::BackwardData && plain.x.data != conv.x.data) copy_elements(plain.x, conv.x);
  if (conv.kind == ConvKind::BackwardWeight && plain.w.data != conv.w.data) copy_elements(plain.w, conv.w);
  return true;
}
#else
bool conv_onednn(const Conv&, bool) {
  return false;
}
#endif

}  // namespace tandem::library
