// cuda.matmul (a, b[, bias]) -> c by cuBLASLt: a (*batch, m, k), b (*batch, k, n), bias (n). Products of 16-bit
// matrices may be wanted in float32.
//
// cuBLASLt thinks in columns: a row-major c = a b is a column-major (n x m) product of b and a, both taken as they lie.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "device/cuda/device.h"
#include "device/cuda/launches.h"
#include "device/cuda/own_kernels.h"
#include "device/preload.h"
#include "fork_guard.h"
#include "library/cuda/open.h"
#include "library/deterministic.h"
#include "library/registry.h"
#include "switches.h"
#include "tensor/device_copy.h"

namespace tandem::library {
namespace {

using Handle = struct HandleTag*;
using Description = struct DescriptionTag*;
using MatrixLayout = struct MatrixLayoutTag*;
using Preference = struct PreferenceTag*;
struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {  // cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

struct Api {
  int (*create)(Handle*);
  int (*description_create)(Description*, int compute, int scale);
  int (*description_set)(Description, int attribute, const void* value, size_t size);
  int (*layout_create)(MatrixLayout*, int type, uint64_t rows, uint64_t columns, int64_t step);
  int (*layout_set)(MatrixLayout, int attribute, const void* value, size_t size);
  int (*preference_create)(Preference*);
  int (*preference_set)(Preference, int attribute, const void* value, size_t size);
  int (*preference_destroy)(Preference);
  int (*heuristic)(Handle, Description, MatrixLayout a, MatrixLayout b, MatrixLayout c, MatrixLayout d, Preference,
                   int wanted, Heuristic* results, int* found);
  int (*matmul)(Handle, Description, const void* alpha, const void* a, MatrixLayout, const void* b, MatrixLayout,
                const void* beta, const void* c, MatrixLayout, void* d, MatrixLayout, const Algorithm*, void* workspace,
                size_t bytes, cuda::Stream);
};

const Api* load_api(const cuda::LoadFrom& load) {
  auto* a = new Api;
  load(a->create, "cublasLtCreate");
  load(a->description_create, "cublasLtMatmulDescCreate");
  load(a->description_set, "cublasLtMatmulDescSetAttribute");
  load(a->layout_create, "cublasLtMatrixLayoutCreate");
  load(a->layout_set, "cublasLtMatrixLayoutSetAttribute");
  load(a->preference_create, "cublasLtMatmulPreferenceCreate");
  load(a->preference_set, "cublasLtMatmulPreferenceSetAttribute");
  load(a->preference_destroy, "cublasLtMatmulPreferenceDestroy");
  load(a->heuristic, "cublasLtMatmulAlgoGetHeuristic");
  load(a->matmul, "cublasLtMatmul");
  return a;
}

// What open_ahead() has made, once nothing is being made any more (finish_preload).
bool opened = false;  // or begun to (GIL)
const Api* api_ahead = nullptr;
Handle handles_ahead[cuda::kMaxDevices];

const Api& api() {
  static const Api* made = [] {
    opened = true;
    finish_preload();
    return api_ahead ? api_ahead : load_api(cuda::LoadFrom("cublasLt"));
  }();
  return *made;
}

void check(int status, const char* what) {
  if (status) fail(ErrorKind::Device, "cuBLASLt: ", what, " failed with status ", status);
}

Handle handle(int device) {
  static Handle made[cuda::kMaxDevices];
  const Api& lt = api();
  if (!made[device]) made[device] = handles_ahead[device];
  if (!made[device]) check(lt.create(&made[device]), "cublasLtCreate");
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
      return 14;
    default:
      fail(ErrorKind::Unsupported, "matmul of ", name(dtype), " does not run on CUDA devices");
  }
}

// One matrix of the product as cuBLASLt takes it: column-major, perhaps to be transposed.
struct Matrix {
  bool transposed;
  int64_t step;  // between columns
};

// What distinguishes products: everything that the choice of an algorithm depends on.
struct Key {
  int64_t values[16];
  bool operator<(const Key& o) const { return std::memcmp(values, o.values, sizeof values) < 0; }
};

struct Entry {
  Description description = nullptr;
  MatrixLayout first = nullptr, second = nullptr, result = nullptr;
  Heuristic best{};
  std::vector<Heuristic> others;  // that cuBLASLt thinks are nearly as good, while they have not been tried
};

// TANDEM_TUNE: the algorithm of a product is the fastest of several, found by trying, instead of cuBLASLt's first.
bool tunes() {
  return switches::get(switches::tune) != 0 && !deterministic();
}
constexpr int kTried = 8;

constexpr size_t kWorkspace = size_t{32} << 20;

Entry make_entry(const Api& lt, Handle library, DType dtype, DType result, int64_t m, int64_t n, int64_t k, Matrix a,
                 Matrix b, int64_t c_step, int64_t batch, const int64_t (&offsets)[3], bool bias, uint64_t alignment) {
  Entry e;
  const bool f64 = dtype == DType::Float64;
  const int compute = f64 ? 70 : dtype == DType::Float32 && cuda::allow_tf32 ? 77 : 68;
  check(lt.description_create(&e.description, compute, f64 ? 1 : 0), "describing a product");
  const int32_t first = b.transposed, second = a.transposed;
  check(lt.description_set(e.description, 3, &first, sizeof first), "TRANSA");
  check(lt.description_set(e.description, 4, &second, sizeof second), "TRANSB");
  if (bias) {
    const int32_t epilogue = 4;
    check(lt.description_set(e.description, 7, &epilogue, sizeof epilogue), "EPILOGUE");
  }
  const auto layout = [&](MatrixLayout& made, DType type, int64_t rows, int64_t columns, int64_t step, int64_t offset) {
    check(lt.layout_create(&made, data_type(type), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), step),
          "a layout");
    if (batch > 1) {
      const int32_t count = static_cast<int32_t>(batch);
      check(lt.layout_set(made, 5, &count, sizeof count), "BATCH_COUNT");
      check(lt.layout_set(made, 6, &offset, sizeof offset), "STRIDED_BATCH_OFFSET");
    }
  };
  layout(e.first, dtype, b.transposed ? k : n, b.transposed ? n : k, b.step, offsets[1]);
  layout(e.second, dtype, a.transposed ? m : k, a.transposed ? k : m, a.step, offsets[0]);
  layout(e.result, result, n, m, c_step, offsets[2]);
  Preference preference = nullptr;
  check(lt.preference_create(&preference), "a preference");
  const size_t workspace = kWorkspace;
  lt.preference_set(preference, 1, &workspace, sizeof workspace);
  const uint32_t bytes = static_cast<uint32_t>(alignment);
  for (int attribute = 5; attribute <= 8; ++attribute) lt.preference_set(preference, attribute, &bytes, sizeof bytes);
  int found = 0;
  Heuristic list[kTried];
  const int status = lt.heuristic(library, e.description, e.first, e.second, e.result, e.result, preference,
                                  tunes() ? kTried : 1, list, &found);
  lt.preference_destroy(preference);
  if (status || found == 0)
    fail(ErrorKind::Device, "cuBLASLt has no algorithm for a ", name(dtype), " product of (", m, ", ", k, ") and (", k,
         ", ", n, "), status ", status);
  e.best = list[0];
  for (int i = 1; i < found; ++i)
    if (list[i].status == 0) e.others.push_back(list[i]);
  return e;
}

// Note [Products ahead]
// Most of what the first product takes, some 150 ms, is opening cuBLASLt and what it does when it is first asked for an
// algorithm. While a program is traced and its kernels are compiled, a thread does both; the product asked for here is
// only there for that.
void open_ahead(int device, DType dtype, const std::vector<std::string>& paths) {
  constexpr int64_t n = 1024;
  try {
    cuda::activate(device);
    void* library = nullptr;
    for (const std::string& path : paths)
      if (!library) library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    const Api* lt = load_api(cuda::LoadFrom("cublasLt", library));
    Handle made = nullptr;
    check(lt->create(&made), "cublasLtCreate");
    api_ahead = lt;
    handles_ahead[device] = made;
    make_entry(*lt, made, dtype, dtype, n, n, n, {false, n}, {false, n}, n, 1, {0, 0, 0}, false, 256);
  } catch (...) {  // whatever it is, the first product meets it again and tells
  }
}

// The time of a few runs of `call`, which queues one product, in milliseconds; the first run does not count.
template <class Call>
float time_of(cuda::Stream stream, const Call& call) {
  constexpr int kRuns = 4;
  const cuda::Driver& d = cuda::driver();
  cuda::Event start = nullptr, end = nullptr;
  cuda::check(d.event_create(&start, 0), "an event");
  cuda::check(d.event_create(&end, 0), "an event");
  float ms = std::numeric_limits<float>::infinity();
  bool good = call();
  d.event_record(start, stream);
  for (int i = 0; i < kRuns && good; ++i) good = call();
  d.event_record(end, stream);
  if (good) {
    d.event_synchronize(end);
    d.event_elapsed(&ms, start, end);
  }
  d.event_destroy(start);
  d.event_destroy(end);
  return ms;
}

bool is_capturing(cuda::Stream stream) {
  int state = 0;
  unsigned long long id = 0;
  const cuda::GraphNode* last = nullptr;
  size_t count = 0;
  cuda::check(cuda::driver().capture_info(stream, &state, &id, nullptr, &last, &count), "asking for a capture");
  return state != 0;
}

// A view whose last two axes cuBLASLt can read: rows or columns without gaps inside. Others are copied.
struct Readable {
  View view;
  Matrix matrix{};
  std::unique_ptr<cuda::Workspace> memory;
};

bool readable(const View& v, Matrix& matrix) {
  const int nd = v.ndim;
  const int64_t rows = v.shape[nd - 2], columns = v.shape[nd - 1];
  int64_t row = v.strides[nd - 2], column = v.strides[nd - 1];
  if (columns == 1) column = 1;
  if (rows == 1) row = column == 1 ? std::max<int64_t>(columns, 1) : 1;
  if (column == 1 && row >= columns) {
    matrix = {false, row};
    return true;
  }
  if (columns == 1 && rows > 1 && row == 1) {
    matrix = {true, rows};
    return true;
  }
  if (row == 1 && column >= rows) {
    matrix = {true, column};
    return true;
  }
  return false;
}

// A copy in rows without gaps.
void make_dense(int device, const View& v, Readable& out) {
  View dense = v;
  int64_t step = 1;
  for (int i = v.ndim - 1; i >= 0; --i) {
    dense.strides[i] = step;
    step *= v.shape[i];
  }
  auto memory = std::make_unique<cuda::Workspace>(device, static_cast<size_t>(step) * item_size(v.dtype));
  dense.data = memory->data();
  cuda::copy_elements(device, v, dense);
  TD_CHECK(readable(dense, out.matrix));
  out.view = dense;
  out.memory = std::move(memory);
}

void make_readable(int device, const View& v, Readable& out) {
  out.view = v;
  if (!readable(v, out.matrix)) make_dense(device, v, out);
}

// Leading axes, merged where all three move through them as through one.
struct Batch {
  int ndim = 0;
  int64_t shape[kMaxDims], strides[3][kMaxDims];
};
Batch merge_batch(const View* const (&views)[3], int count) {
  Batch b;
  for (int i = 0; i < count; ++i) {
    if (views[2]->shape[i] == 1) continue;
    const int last = b.ndim - 1;
    bool merges = b.ndim > 0;
    for (int v = 0; v < 3 && merges; ++v) merges = b.strides[v][last] == views[v]->strides[i] * views[v]->shape[i];
    const int at = merges ? last : b.ndim++;
    b.shape[at] = merges ? b.shape[at] * views[2]->shape[i] : views[2]->shape[i];
    for (int v = 0; v < 3; ++v) b.strides[v][at] = views[v]->strides[i];
  }
  return b;
}

// Products in a batch whose axes do not merge are a call for each place of the outer ones. See Note [Batches of
// products].
int64_t calls_of(const Batch& b) {
  int64_t calls = 1;
  for (int i = 0; i < b.ndim - 1; ++i) calls *= b.shape[i];
  return calls;
}

void longest_last(Batch& b) {
  if (b.ndim < 2) return;
  const int last = b.ndim - 1, longest = static_cast<int>(std::max_element(b.shape, b.shape + b.ndim) - b.shape);
  std::swap(b.shape[longest], b.shape[last]);
  for (auto& strides : b.strides) std::swap(strides[longest], strides[last]);
}

// Note [Batches of products]
// cuBLASLt takes one axis of a batch. Heads of attention that are views of what lies as (batch, tokens, heads, width)
// have two that do not merge: the longer one is left to the library, and the other is a loop of calls. Where these take
// longer than copies of the operands that stand in the way, they are copied.
constexpr double kCallMicroseconds = 4;
constexpr double kCopiedPerMicrosecond = 16384;  // bytes, by a multiprocessor

Batch batch_of(int device, Readable& a, Readable& b, const View& c, int count) {
  Batch batch = merge_batch({&a.view, &b.view, &c}, count);
  longest_last(batch);
  const int64_t calls = calls_of(batch);
  if (calls == 1 || merge_batch({&c, &c, &c}, count).ndim > 1) return batch;
  double cost = 0;
  for (Readable* x : {&a, &b}) {
    if (merge_batch({&x->view, &x->view, &c}, count).ndim < 2) continue;
    for (int i = 0; i < count; ++i)
      if (x->view.shape[i] > 1 && x->view.strides[i] == 0) return batch;  // repeated: a copy would be larger
    const double bytes = 2.0 * static_cast<double>(x->view.numel() * static_cast<int64_t>(item_size(x->view.dtype)));
    cost += kCallMicroseconds + bytes / (kCopiedPerMicrosecond * cuda::properties(device).multiprocessors);
  }
  if (cost >= kCallMicroseconds * static_cast<double>(calls - 1)) return batch;
  for (Readable* x : {&a, &b}) {
    if (merge_batch({&x->view, &x->view, &c}, count).ndim < 2) continue;
    Readable dense;
    make_dense(device, x->view, dense);
    *x = std::move(dense);
  }
  batch = merge_batch({&a.view, &b.view, &c}, count);
  longest_last(batch);
  return batch;
}

// c = a b + bias, or c += a b.
void product(const Call& call, View a, View b, View c, const View* bias, bool add) {
  const int device = call.device;
  if (c.numel() == 0) return;
  const int nd = c.ndim;
  const int64_t m = c.shape[nd - 2], n = c.shape[nd - 1], k = a.shape[nd - 1];
  const auto stream = static_cast<cuda::Stream>(call.stream);
  const size_t size = item_size(c.dtype), sizes[3] = {item_size(a.dtype), item_size(b.dtype), size};
  if (k == 0) {
    if (bias) {
      View spread = c;
      spread.data = bias->data;
      std::fill(spread.strides, spread.strides + nd, 0);
      spread.strides[nd - 1] = bias->strides[0];
      return cuda::copy_elements(device, spread, c);
    }
    TD_CHECK(c.is_contiguous(), "a product of nothing into memory with gaps");
    cuda::check(cuda::driver().set_bytes(reinterpret_cast<cuda::Address>(c.data), 0, c.numel() * size, stream),
                "zeros");
    return;
  }
  Readable ra, rb;
  make_readable(device, a, ra);
  make_readable(device, b, rb);
  Matrix mc;
  TD_CHECK(readable(c, mc) && !mc.transposed, "the result of a product must lie in rows");
  std::unique_ptr<cuda::Workspace> dense_bias;
  const char* bias_data = bias ? bias->data : nullptr;
  if (bias && bias->strides[0] != 1 && n > 1) {
    dense_bias = std::make_unique<cuda::Workspace>(device, n * size);
    View to = *bias;
    to.data = dense_bias->data();
    to.strides[0] = 1;
    cuda::copy_elements(device, *bias, to);
    bias_data = to.data;
  }
  const Batch batch = batch_of(device, ra, rb, c, nd - 2);
  const int64_t inner = batch.ndim ? batch.shape[batch.ndim - 1] : 1;
  int64_t offsets[3] = {0, 0, 0};
  for (int v = 0; v < 3 && batch.ndim; ++v) offsets[v] = batch.strides[v][batch.ndim - 1];
  const int64_t outer = calls_of(batch);

  uint64_t low_bits = reinterpret_cast<uint64_t>(ra.view.data) | reinterpret_cast<uint64_t>(rb.view.data) |
                      reinterpret_cast<uint64_t>(c.data) | 256;
  for (int i = 0; i < batch.ndim; ++i)
    for (int v = 0; v < 3; ++v) low_bits |= static_cast<uint64_t>(batch.strides[v][i]) * sizes[v];
  const uint64_t alignment = low_bits & (~low_bits + 1);
  const Key key{{device, static_cast<int>(c.dtype) | static_cast<int>(a.dtype) << 8, m, n, k, ra.matrix.transposed,
                 ra.matrix.step, rb.matrix.transposed, rb.matrix.step, mc.step, inner, offsets[0], offsets[1],
                 offsets[2], (bias ? 1 : 0) | (cuda::allow_tf32 ? 2 : 0) | (tunes() ? 4 : 0),
                 static_cast<int64_t>(alignment)}};
  static std::mutex mutex;  // guards entries
  static ForkGuard fork(mutex);
  static auto* entries = new std::map<Key, Entry>();
  Entry* entry;
  {
    std::lock_guard guard(mutex);
    auto found = entries->find(key);
    if (found == entries->end())
      found = entries
                  ->emplace(key, make_entry(api(), handle(device), a.dtype, c.dtype, m, n, k, ra.matrix, rb.matrix,
                                            mc.step, inner, offsets, bias != nullptr, alignment))
                  .first;
    entry = &found->second;
  }
  const Api& lt = api();
  if (bias) check(lt.description_set(entry->description, 8, &bias_data, sizeof bias_data), "BIAS_POINTER");
  const float one = 1, zero = add;
  const double one64 = 1, zero64 = add;
  const bool f64 = c.dtype == DType::Float64;
  if (!entry->others.empty() && !add && !is_capturing(stream)) {  // results are overwritten below
    const auto timed = [&](const Heuristic& h) {
      const cuda::Workspace memory(device, h.workspace);
      return time_of(stream, [&] {
        return lt.matmul(handle(device), entry->description, f64 ? static_cast<const void*>(&one64) : &one,
                         rb.view.data, entry->first, ra.view.data, entry->second,
                         f64 ? static_cast<const void*>(&zero64) : &zero, c.data, entry->result, c.data, entry->result,
                         &h.algorithm, memory.data(), h.workspace, stream) == 0;
      });
    };
    float best = 0.97f * timed(entry->best);  // what is hardly faster is not worth another choice
    for (const Heuristic& h : std::exchange(entry->others, {}))
      if (const float ms = timed(h); ms < best) best = ms, entry->best = h;
  }
  const cuda::Workspace workspace(device, entry->best.workspace);
  for (int64_t i = 0; i < outer; ++i) {
    int64_t rest = i, at[3] = {0, 0, 0};
    for (int d = batch.ndim - 2; d >= 0; --d) {
      for (int v = 0; v < 3; ++v) at[v] += rest % batch.shape[d] * batch.strides[v][d];
      rest /= batch.shape[d];
    }
    char* to = c.data + at[2] * static_cast<int64_t>(size);
    check(lt.matmul(handle(device), entry->description, f64 ? static_cast<const void*>(&one64) : &one,
                    rb.view.data + at[1] * static_cast<int64_t>(sizes[1]), entry->first,
                    ra.view.data + at[0] * static_cast<int64_t>(sizes[0]), entry->second,
                    f64 ? static_cast<const void*>(&zero64) : &zero, to, entry->result, to, entry->result,
                    &entry->best.algorithm, workspace.data(), entry->best.workspace, stream),
          "a product");
  }
}

// -- small products

constexpr int64_t kSmall = 64;          // rows, columns and terms
constexpr int64_t kSmallBlocks = 1024;  // more of them than that are the library's

struct SmallArguments {  // of small_matmul_kernel in tandem/codegen/cuda/routines.py
  const char *a, *b, *bias;
  char* c;
  int64_t m, n, k, a_row, a_column, b_row, b_column, c_row, bias_step, a_batch, b_batch, c_batch;
};

// A launch of our own costs the host half of a call of cuBLASLt. False: not for these sizes.
bool small_product(const Call& call, const View& a, const View& b, const View& c, const View* bias) {
  const int nd = c.ndim, rows = nd - 2, columns = nd - 1;
  const int64_t m = c.shape[rows], n = c.shape[columns], k = a.shape[columns];
  if (!is_floating(c.dtype) || a.dtype != c.dtype) return false;
  if (m > kSmall || n > kSmall || k > kSmall || m * n * k == 0 || (n > 1 && c.strides[columns] != 1)) return false;
  const Batch batch = merge_batch({&a, &b, &c}, rows);
  const int64_t blocks = (m + 15) / 16 * ((n + 15) / 16) * (batch.ndim ? batch.shape[0] : 1);
  if (batch.ndim > 1 || blocks > kSmallBlocks || blocks == 0) return false;
  SmallArguments p{a.data,
                   b.data,
                   bias ? bias->data : nullptr,
                   c.data,
                   m,
                   n,
                   k,
                   a.strides[rows],
                   a.strides[columns],
                   b.strides[rows],
                   b.strides[columns],
                   c.strides[rows],
                   bias ? bias->strides[0] : 0,
                   batch.ndim ? batch.strides[0][0] : 0,
                   batch.ndim ? batch.strides[1][0] : 0,
                   batch.ndim ? batch.strides[2][0] : 0};
  static cuda::Function kernels[cuda::kMaxDevices][kNumDTypes];  // (GIL)
  cuda::Function& kernel = kernels[call.device][static_cast<int>(c.dtype)];
  if (!kernel) kernel = cuda::load_own_kernel(call.device, "small_matmul", static_cast<int>(c.dtype));
  cuda::check(cuda::launch(call.device, kernel, static_cast<unsigned>(blocks), {16, 16}, 0,
                           static_cast<cuda::Stream>(call.stream), &p),
              "launching a product");
  return true;
}

// -- products of odd sizes

// Long rows that start at odd elements, as copies whose rows start at multiples of 16 bytes: reading them once more
// costs little beside a product without tensor cores' loads.
struct Aligned {
  View view;
  std::unique_ptr<cuda::Workspace> memory;
};
void align_rows(int device, const View& v, Aligned& out) {
  constexpr int64_t kLongRow = 1024, kUnit = 8;
  out.view = v;
  const int rows = v.ndim - 2, columns = v.ndim - 1;
  for (const auto& [outer, inner] : {std::pair{rows, columns}, std::pair{columns, rows}}) {
    if (v.strides[inner] != 1 || v.strides[outer] % kUnit == 0 || v.shape[inner] < kLongRow) continue;
    for (int i = 0; i < rows; ++i)
      if (v.shape[i] != 1) return;
    View flat, to;
    flat.ndim = to.ndim = 2;
    flat.dtype = to.dtype = v.dtype;
    flat.data = v.data;
    flat.shape[0] = to.shape[0] = v.shape[outer], flat.shape[1] = to.shape[1] = v.shape[inner];
    flat.strides[0] = v.strides[outer], to.strides[0] = (v.shape[inner] + kUnit - 1) / kUnit * kUnit;
    flat.strides[1] = to.strides[1] = 1;
    out.memory = std::make_unique<cuda::Workspace>(
        device, static_cast<size_t>(to.shape[0] * to.strides[0]) * item_size(v.dtype));
    to.data = out.view.data = out.memory->data();
    cuda::copy_elements(device, flat, to);
    out.view.strides[outer] = to.strides[0];
    return;
  }
}

// [from, to) of an axis
View part(View v, int axis, int64_t from, int64_t to) {
  v.data += from * v.strides[axis] * static_cast<int64_t>(item_size(v.dtype));
  v.shape[axis] = to - from;
  return v;
}

// Tensor cores want sizes that are multiples of 16 bytes; a long odd one is done as the largest such part and the rest.
void run_matmul(const Call& call) {
  const View& c = call.outputs[0];
  const View* bias = call.num_inputs == 3 ? &call.inputs[2] : nullptr;
  if (small_product(call, call.inputs[0], call.inputs[1], c, bias)) return;
  Aligned first, second;
  const View *in_a = &call.inputs[0], *in_b = &call.inputs[1];
  constexpr double kWorthCopies = 1e10;
  if (item_size(in_a->dtype) == 2 &&
      static_cast<double>(c.numel()) * static_cast<double>(in_a->shape[c.ndim - 1]) > kWorthCopies) {
    align_rows(call.device, *in_a, first);
    align_rows(call.device, *in_b, second);
    in_a = &first.view, in_b = &second.view;
  }
  const View &a = *in_a, &b = *in_b;
  constexpr int64_t kLong = 1024;
  const int rows = c.ndim - 2, columns = c.ndim - 1;
  const int64_t n = c.shape[columns], k = a.shape[columns];
  if (item_size(a.dtype) == 2) {
    if (n > kLong && n % 8 != 0 && c.strides[rows] % 8 == 0 && !bias) {
      const int64_t even = n / 8 * 8;
      product(call, a, part(b, columns, 0, even), part(c, columns, 0, even), nullptr, false);
      return product(call, a, part(b, columns, even, n), part(c, columns, even, n), nullptr, false);
    }
    const int64_t m = c.shape[rows];
    if (m > kLong && m % 8 != 0 && a.strides[rows] == 1 && a.strides[columns] % 8 == 0) {  // a transposed
      const int64_t even = m / 8 * 8;
      product(call, part(a, rows, 0, even), b, part(c, rows, 0, even), bias, false);
      return product(call, part(a, rows, even, m), b, part(c, rows, even, m), bias, false);
    }
    if (k > kLong && k % 8 != 0 && a.strides[rows] % 8 == 0) {
      const int64_t even = k / 8 * 8;
      product(call, part(a, columns, 0, even), part(b, rows, 0, even), c, bias, false);
      return product(call, part(a, columns, even, k), part(b, rows, even, k), c, nullptr, true);
    }
  }
  product(call, a, b, c, bias, false);
}

const Register registered("cuda.matmul", &run_matmul);

}  // namespace
}  // namespace tandem::library

namespace tandem::cuda {

void open_products_ahead(int device, DType dtype, std::vector<std::string> paths) {
  if (std::exchange(library::opened, true)) return;
  run_beside([=, paths = std::move(paths)] { library::open_ahead(device, dtype, paths); });
}

}  // namespace tandem::cuda
