#ifdef TANDEM_ONEDNN
#include "library/onednn.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>

#include "check.h"
#include "device/parallel.h"
#include "device/signal_stack.h"
#include "fork_guard.h"
#include "library/blas.h"
#include "library/openmp/shim.h"
#include "library/registry.h"
#include "library/scratch.h"

namespace tandem::library::onednn {
namespace {

const Api* load() {
  void* openmp = open_bundled("libtomp.so.1");
  if (!openmp) return nullptr;
  const auto connect = reinterpret_cast<void (*)(const tandem_openmp_pool*)>(dlsym(openmp, "tandem_openmp_connect"));
  if (!connect) return nullptr;
  const tandem_openmp_pool pool = {&team_size, &in_parallel, &begin_team, &end_team};
  connect(&pool);

  void* library = open_bundled("libdnnl.so.3");
  if (!library) return nullptr;
  static Api table;
#define X(name)                                                               \
  table.name = reinterpret_cast<decltype(table.name)>(dlsym(library, #name)); \
  if (!table.name) return nullptr;
  TANDEM_ONEDNN_FUNCTIONS(X)
#undef X
  return &table;
}

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t hash = 0x9e3779b97f4a7c15;
    for (int i = 0; i < key.count; ++i) {
      hash = (hash ^ static_cast<uint64_t>(key.words[i])) * 0xff51afd7ed558ccd;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

using Programs = std::unordered_map<Key, std::unique_ptr<Program>, KeyHash>;
constexpr size_t kMostPrograms = 1024;

// By thread, because memory objects are changed for each run; oneDNN itself shares the compiled code between threads.
Programs& own_programs() {
  thread_local Programs programs;
  return programs;
}

// What several threads make for one of them.
struct Collector {
  const Programs& known;  // of the thread that they are made for, which does not touch them meanwhile
  std::mutex mutex;       // guards made
  Programs made;

  void add(const Key& key, const std::function<std::unique_ptr<Program>()>& make) {
    if (known.count(key)) return;
    {
      std::lock_guard lock(mutex);
      if (!made.try_emplace(key).second) return;  // another thread is at it
    }
    auto program = make();
    std::lock_guard lock(mutex);
    made[key] = std::move(program);
  }
};
thread_local Collector* collector = nullptr;

}  // namespace

const Api* api() {
  static const Api* const table = load();
  return table;
}

dnnl_engine_t engine() {
  static const dnnl_engine_t one = [] {
    dnnl_engine_t made;
    check(api()->dnnl_engine_create(&made, dnnl_cpu, 0), "engine");
    return made;
  }();
  return one;
}

dnnl_stream_t stream() {
  struct Owner {
    dnnl_stream_t stream;
    Owner() {
      set_signal_stack();  // see Note [Signals in foreign code]
      check(api()->dnnl_stream_create(&stream, engine(), dnnl_stream_default_flags), "stream");
    }
    ~Owner() { api()->dnnl_stream_destroy(stream); }
  };
  thread_local Owner owner;
  return owner.stream;
}

void check(dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return;
  const ErrorKind kind = status == dnnl_out_of_memory ? ErrorKind::Memory : ErrorKind::Internal;
  fail(kind, "oneDNN: ", what, " failed with status ", static_cast<int>(status));
}

dnnl_data_type_t data_type(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return dnnl_f32;
    case DType::BFloat16:
      return dnnl_bf16;
    case DType::Float16:
      return dnnl_f16;
    default:
      fail(ErrorKind::Internal, "oneDNN has no ", name(dtype));
  }
}

bool has_bfloat16() {
  static const bool has =
      (api()->dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
  return has;
}

bool has_float16() {
  static const bool has =
      (api()->dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_fp16) == dnnl_cpu_isa_avx512_core_fp16;
  return has;
}

Desc describe(DType dtype, int ndim, const int64_t* shape, const int64_t* strides) {
  dnnl_memory_desc_t desc;
  check(api()->dnnl_memory_desc_create_with_strides(&desc, ndim, shape, data_type(dtype), strides),
        "memory description");
  return Desc(desc);
}

Desc describe_any(DType dtype, int ndim, const int64_t* shape) {
  dnnl_memory_desc_t desc;
  check(api()->dnnl_memory_desc_create_with_tag(&desc, ndim, shape, data_type(dtype), dnnl_format_tag_any),
        "memory description");
  return Desc(desc);
}

Desc copy(const_dnnl_memory_desc_t from) {
  dnnl_memory_desc_t desc;
  check(api()->dnnl_memory_desc_clone(&desc, from), "memory description");
  return Desc(desc);
}

Executable::Executable(const std::function<dnnl_status_t(dnnl_primitive_desc_t*, const_dnnl_primitive_attr_t)>& make,
                       const char* what, const_dnnl_post_ops_t after) {
  dnnl_primitive_attr_t attr;
  check(api()->dnnl_primitive_attr_create(&attr), what);
  const Handle<dnnl_primitive_attr_t> owner(attr);
  check(api()->dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user), what);
  if (after) check(api()->dnnl_primitive_attr_set_post_ops(attr, after), what);
  dnnl_primitive_desc_t desc;
  check(make(&desc, attr), what);
  desc_.reset(desc);
  dnnl_primitive_t primitive;
  const NoFork making;  // in the library's cache, which has a lock
  check(api()->dnnl_primitive_create(&primitive, desc), what);
  primitive_.reset(primitive);
  const auto scratch = query(dnnl_query_scratchpad_md);
  scratch_bytes_ = scratch ? api()->dnnl_memory_desc_get_size(scratch) : 0;
  if (scratch_bytes_) bind(DNNL_ARG_SCRATCHPAD, scratch);
}

const_dnnl_memory_desc_t Executable::query(dnnl_query_t what, int index) const {
  return api()->dnnl_primitive_desc_query_md(desc_.get(), what, index);
}

void Executable::bind(int argument, const_dnnl_memory_desc_t desc) {
  dnnl_memory_t memory;
  check(api()->dnnl_memory_create(&memory, desc, engine(), DNNL_MEMORY_NONE), "memory");
  memories_.emplace_back(memory);
  arguments_.push_back({argument, memory});
}

void Executable::run(void* const* data, size_t count) {
  const Scratch<char> scratch(scratch_bytes_);
  size_t at = 0;
  if (scratch_bytes_) api()->dnnl_memory_set_data_handle(arguments_[at++].memory, scratch.data());
  for (size_t i = 0; i < count; ++i) api()->dnnl_memory_set_data_handle(arguments_[at++].memory, data[i]);
  TD_CHECK(at == arguments_.size(), "arguments of a oneDNN primitive");
  check(
      api()->dnnl_primitive_execute(primitive_.get(), stream(), static_cast<int>(arguments_.size()), arguments_.data()),
      "execution");
}

Program* cached(const Key& key, const std::function<std::unique_ptr<Program>()>& make) {
  if (collector) [[unlikely]] {
    collector->add(key, make);
    return nullptr;
  }
  Programs& programs = own_programs();
  if (const auto found = programs.find(key); found != programs.end()) return found->second.get();
  auto made = make();
  if (programs.size() >= kMostPrograms) programs.clear();
  return (programs[key] = std::move(made)).get();
}

}  // namespace tandem::library::onednn

namespace tandem::library {

bool preparing() {
  return onednn::collector != nullptr || measuring();
}

void prepare(const std::vector<Call>& calls, const std::vector<Function>& routines) {
  using namespace onednn;
  if (!api()) return;
  Programs& own = own_programs();
  Collector all{own, {}, {}};
  std::atomic<size_t> next{0};
  const auto work = [&] {
    collector = &all;
    for (size_t i; (i = next.fetch_add(1)) < calls.size();) {
      try {
        routines[i](calls[i]);
      } catch (...) {  // the run that follows meets it again, and tells
      }
    }
    collector = nullptr;
  };
  std::vector<std::thread> helpers;
  try {
    for (int i = 1; i < num_threads(); ++i) helpers.emplace_back(work);
  } catch (const std::system_error&) {  // no more threads: fewer do
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  if (own.size() + all.made.size() > kMostPrograms) own.clear();
  for (auto& [key, program] : all.made)
    if (program) own[key] = std::move(program);
}

}  // namespace tandem::library

namespace tandem::library::onednn {

int team_size() {
  return in_parallel() ? 1 : num_threads();
}

}  // namespace tandem::library::onednn
#else
#include "library/registry.h"

namespace tandem::library {
bool preparing() {
  return measuring();
}
void prepare(const std::vector<Call>&, const std::vector<Function>&) {}
}  // namespace tandem::library
#endif
