// oneDNN, opened when it is first needed, through a table of the functions that we use.
#pragma once
#ifdef TANDEM_ONEDNN
#include <oneapi/dnnl/dnnl.h>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "tensor/view.h"

namespace tandem::library::onednn {

// clang-format off
#define TANDEM_ONEDNN_FUNCTIONS(X) \
  X(dnnl_engine_create) X(dnnl_stream_create) X(dnnl_stream_destroy) X(dnnl_get_effective_cpu_isa) \
  X(dnnl_memory_desc_create_with_strides) X(dnnl_memory_desc_create_with_tag) X(dnnl_memory_desc_clone) \
  X(dnnl_memory_desc_destroy) X(dnnl_memory_desc_equal) X(dnnl_memory_desc_get_size) X(dnnl_memory_create) \
  X(dnnl_memory_destroy) X(dnnl_memory_set_data_handle) X(dnnl_primitive_attr_create) \
  X(dnnl_primitive_attr_destroy) X(dnnl_primitive_attr_set_scratchpad_mode) X(dnnl_primitive_desc_query_md) \
  X(dnnl_primitive_desc_query) X(dnnl_primitive_desc_destroy) X(dnnl_primitive_create) \
  X(dnnl_primitive_destroy) X(dnnl_primitive_execute) X(dnnl_matmul_primitive_desc_create) \
  X(dnnl_reorder_primitive_desc_create) X(dnnl_convolution_forward_primitive_desc_create) \
  X(dnnl_convolution_backward_data_primitive_desc_create) \
  X(dnnl_convolution_backward_weights_primitive_desc_create) \
  X(dnnl_primitive_attr_set_post_ops) X(dnnl_post_ops_create) X(dnnl_post_ops_destroy) \
  X(dnnl_post_ops_append_eltwise) X(dnnl_post_ops_append_binary) X(dnnl_post_ops_append_sum)
// clang-format on

struct Api {
#define X(name) decltype(&::name) name;
  TANDEM_ONEDNN_FUNCTIONS(X)
#undef X
};

const Api* api();  // nullptr where the library cannot be opened
dnnl_engine_t engine();
dnnl_stream_t stream();  // one for each thread
void check(dnnl_status_t status, const char* what);
dnnl_data_type_t data_type(DType dtype);
bool has_bfloat16();  // whether the CPU multiplies these itself; otherwise float32 is faster
bool has_float16();

// Owning handles.
struct Delete {
  void operator()(dnnl_memory_desc_t p) const { api()->dnnl_memory_desc_destroy(p); }
  void operator()(dnnl_primitive_desc_t p) const { api()->dnnl_primitive_desc_destroy(p); }
  void operator()(dnnl_primitive_t p) const { api()->dnnl_primitive_destroy(p); }
  void operator()(dnnl_memory_t p) const { api()->dnnl_memory_destroy(p); }
  void operator()(dnnl_primitive_attr_t p) const { api()->dnnl_primitive_attr_destroy(p); }
  void operator()(dnnl_post_ops_t p) const { api()->dnnl_post_ops_destroy(p); }
};
template <typename T>
using Handle = std::unique_ptr<std::remove_pointer_t<T>, Delete>;
using Desc = Handle<dnnl_memory_desc_t>;

Desc describe(DType dtype, int ndim, const int64_t* shape, const int64_t* strides);
Desc describe_any(DType dtype, int ndim, const int64_t* shape);  // oneDNN chooses the layout
Desc copy(const_dnnl_memory_desc_t desc);

// What a primitive was made for: everything that its making depended on.
struct Key {
  int count = 0;
  int64_t words[80];
  void add(int64_t word) { words[count++] = word; }
  void add(const int64_t* list, int n) {
    for (int i = 0; i < n; ++i) add(list[i]);
  }
  bool operator==(const Key& other) const {
    return count == other.count && !std::memcmp(words, other.words, count * 8);
  }
};

// A primitive with its memory objects, for use by one thread at a time.
class Executable {
 public:
  // `make` is given an attribute object and creates the primitive's description.
  explicit Executable(const std::function<dnnl_status_t(dnnl_primitive_desc_t*, const_dnnl_primitive_attr_t)>& make,
                      const char* what, const_dnnl_post_ops_t after = nullptr);

  const_dnnl_memory_desc_t query(dnnl_query_t what, int index = 0) const;
  void bind(int argument, const_dnnl_memory_desc_t desc);  // the arguments of run(), in order
  void run(std::initializer_list<void*> data) { run(data.begin(), data.size()); }
  void run(void* const* data, size_t count);
  size_t scratch() const { return scratch_bytes_; }  // that run() takes

 private:
  Handle<dnnl_primitive_desc_t> desc_;
  Handle<dnnl_primitive_t> primitive_;
  std::vector<Handle<dnnl_memory_t>> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
  size_t scratch_bytes_ = 0;
};

// Finds what the calling thread has made for this key, or makes it.
class Program {  // a few primitives that are used together
 public:
  virtual ~Program() = default;
};
// Null while preparing (registry.h), unless Scratch is only measured: there is nothing to run.
Program* cached(const Key& key, const std::function<std::unique_ptr<Program>()>& make);

int team_size();  // how many threads a primitive made here and now will use; part of every key

}  // namespace tandem::library::onednn
#endif
