#include "tensor/device_rows.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "check.h"
#include "device/cuda/device.h"
#include "device/cuda/launches.h"
#include "device/cuda/memory.h"
#include "device/cuda/own_kernels.h"

namespace tandem {

bool rows_as_on_devices = false;

namespace {

constexpr size_t kFewTables = 4;  // launches with tables of their own that cost less than a copy of one table

// What the kernels take: rows_kernel in tandem/codegen/cuda/routines.py.
struct Parameters {
  const uint64_t* table;  // null: it is in `row`
  char* to[kMostJoined];  // where joined rows go,
  uint64_t each, first;   // so many to each place; the number of the table's first
  uint64_t count, size;   // rows, and the elements of each
  uint64_t row[2 * kRowsByValue];
};

struct Table {  // on the device
  explicit Table(int device, const std::vector<uint64_t>& words)
      : block(cuda::allocate(device, words.size() * sizeof words[0])) {
    cuda::copy_to_device(device, cuda::address_of(block), reinterpret_cast<const char*>(words.data()),
                         words.size() * sizeof words[0], false);
  }
  Table(const Table&) = delete;
  ~Table() { cuda::deallocate(block); }
  cuda::Block* block;
};

void launch_rows(int device, cuda::Function function, const char* label, Parameters& p) {
  constexpr uint64_t kThreads = 256, kMostBlocks = 4224;
  const uint64_t blocks = std::clamp<uint64_t>((p.count * p.size + kThreads - 1) / kThreads, 1, kMostBlocks);
  cuda::note_launch(label);
  cuda::check(
      cuda::launch(device, function, static_cast<unsigned>(blocks), {kThreads, 1}, 0, cuda::current_stream(device), &p),
      label);
}

// words: `per_row` for each row.
void launch_all(int device, cuda::Function function, const char* label, Parameters& p,
                const std::vector<uint64_t>& words, size_t per_row) {
  const size_t rows = words.size() / per_row, at_once = 2 * kRowsByValue / per_row;
  if (rows == 0 || p.size == 0) return;
  p.first = 0;
  if (rows > kFewTables * at_once) {
    const Table table(device, words);
    p.table = reinterpret_cast<const uint64_t*>(cuda::address_of(table.block));
    p.count = rows;
    return launch_rows(device, function, label, p);
  }
  p.table = nullptr;
  for (size_t begin = 0; begin < rows; begin += at_once) {
    p.count = std::min(at_once, rows - begin);
    std::copy_n(words.data() + begin * per_row, p.count * per_row, p.row);
    p.first = begin;
    launch_rows(device, function, label, p);
  }
}

}  // namespace

void join_device_rows(int device, const std::vector<const char*>& rows, size_t bytes,
                      const SmallVector<char*, kMostJoined>& to) {
  if (!device) {
    const size_t each = rows.size() / to.size();
    for (size_t i = 0; i < rows.size(); ++i) std::memcpy(to[i / each] + i % each * bytes, rows[i], bytes);
    return;
  }
  static cuda::Function kernels[cuda::kMaxDevices][17];  // (GIL)
  const int at = device - 1;
  cuda::activate(at);
  std::vector<uint64_t> words;
  words.reserve(rows.size());
  uint64_t all = bytes;
  for (const char* row : rows) {
    words.push_back(reinterpret_cast<uint64_t>(row));
    all |= words.back();
  }
  Parameters p;
  for (size_t i = 0; i < to.size(); ++i) {
    p.to[i] = to[i];
    all |= reinterpret_cast<uint64_t>(to[i]);
  }
  size_t unit = 16;
  while (all & (unit - 1)) unit /= 2;
  cuda::Function& kernel = kernels[at][unit];
  if (!kernel) kernel = cuda::load_own_kernel(at, "join_rows", static_cast<int>(unit));
  p.each = rows.size() / to.size();
  p.size = bytes / unit;
  launch_all(at, kernel, "join_rows", p, words, 1);
}

void fill_zeros(char* data, size_t bytes, int device) {
  if (!device) {
    std::memset(data, 0, bytes);
    return;
  }
  cuda::activate(device - 1);
  cuda::check(
      cuda::driver().set_bytes(reinterpret_cast<cuda::Address>(data), 0, bytes, cuda::current_stream(device - 1)),
      "filling gradients with zeros");
}

namespace {

template <typename T>
void add_on_host(const std::vector<uint64_t>& words, int64_t elements) {
  for (size_t i = 0; i < words.size(); i += 2)
    for (int64_t k = 0; k < elements; ++k)
      reinterpret_cast<T*>(words[i])[k] += reinterpret_cast<const T*>(words[i + 1])[k];
}

// Pairs of words for the kernel.
void add_words(int device, const std::vector<uint64_t>& words, DType dtype, int64_t elements) {
  if (!device) {
    TD_CHECK(dtype == DType::Float32 || dtype == DType::Float64, "rows are added in host memory for tests alone");
    return dtype == DType::Float32 ? add_on_host<float>(words, elements) : add_on_host<double>(words, elements);
  }
  static cuda::Function kernels[cuda::kMaxDevices][kNumDTypes];  // (GIL)
  const int at = device - 1;
  cuda::activate(at);
  cuda::Function& kernel = kernels[at][static_cast<int>(dtype)];
  if (!kernel) kernel = cuda::load_own_kernel(at, "add_rows", static_cast<int>(dtype));
  Parameters p;
  p.size = static_cast<uint64_t>(elements);
  launch_all(at, kernel, "add_rows", p, words, 2);
}

void push(std::vector<uint64_t>& words, const AddedRow& row) {
  words.push_back(reinterpret_cast<uint64_t>(row.to));
  words.push_back(reinterpret_cast<uint64_t>(row.from));
}

void as_real(DType& dtype, int64_t& elements) {
  if (dtype != DType::Complex64 && dtype != DType::Complex128) return;
  dtype = dtype == DType::Complex64 ? DType::Float32 : DType::Float64;
  elements *= 2;
}

// Gives whether some overlap without being the same.
bool sort_rows(std::vector<AddedRow>& rows, size_t bytes) {
  std::stable_sort(rows.begin(), rows.end(), [](const AddedRow& a, const AddedRow& b) { return a.to < b.to; });
  return std::adjacent_find(rows.begin(), rows.end(), [&](const AddedRow& a, const AddedRow& b) {
           return a.to != b.to && b.to < a.to + bytes;
         }) != rows.end();
}

struct Waiting {  // rows of one kind
  int device;
  DType dtype;
  int64_t elements;
  std::vector<uint64_t> words;
  std::vector<TensorRef> from;
};

struct AllWaiting {
  std::vector<Waiting> kinds;
  uint64_t number = 0;
};
thread_local AllWaiting waiting;

uint64_t new_number() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

void add_device_rows(int device, std::vector<AddedRow>& rows, DType dtype, int64_t elements) {
  as_real(dtype, elements);
  const bool overlap = sort_rows(rows, static_cast<size_t>(elements) * item_size(dtype));
  std::vector<uint64_t> words;
  words.reserve(2 * rows.size());
  for (const AddedRow& row : rows) {
    push(words, row);
    if (!overlap) continue;
    add_words(device, words, dtype, elements);  // one after the other
    words.clear();
  }
  add_words(device, words, dtype, elements);
}

void add_device_rows_later(TensorRef from, std::vector<AddedRow>& rows, DType dtype, int64_t elements, bool distinct) {
  const int device = from->storage->device();
  as_real(dtype, elements);
  if (!distinct && sort_rows(rows, static_cast<size_t>(elements) * item_size(dtype))) {
    launch_added_rows();
    return add_device_rows(device, rows, dtype, elements);
  }
  auto found = std::find_if(waiting.kinds.begin(), waiting.kinds.end(), [&](const Waiting& w) {
    return w.device == device && w.dtype == dtype && w.elements == elements;
  });
  if (found == waiting.kinds.end()) found = waiting.kinds.insert(found, {device, dtype, elements, {}, {}});
  for (const AddedRow& row : rows) push(found->words, row);
  found->from.push_back(std::move(from));
}

uint64_t next_added_rows() {
  if (!waiting.number) waiting.number = new_number();
  return waiting.number;
}

void forget_added_rows() {
  waiting.kinds.clear();
  waiting.number = 0;
}

void launch_added_rows() {
  if (waiting.kinds.empty()) return;
  const std::vector<Waiting> kinds = std::exchange(waiting.kinds, {});
  waiting.number = 0;
  for (const Waiting& w : kinds) add_words(w.device, w.words, w.dtype, w.elements);
}

}  // namespace tandem
