#include "autobatch/device_rows.h"

#include <algorithm>

#include "check.h"
#include "device/cuda/device.h"
#include "device/cuda/launches.h"
#include "device/cuda/memory.h"
#include "device/cuda/own_kernels.h"

namespace tandem {

namespace {

constexpr size_t kFewTables = 4;  // launches with tables of their own that cost less than a copy of one table

// What the kernels take: rows_kernel in tandem/codegen/cuda/routines.py.
struct Parameters {
  const uint64_t* table;  // null: it is in `row`
  char* to;               // where joined rows go
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
                const std::vector<uint64_t>& words, size_t per_row, size_t row_bytes) {
  const size_t rows = words.size() / per_row, at_once = 2 * kRowsByValue / per_row;
  if (rows == 0 || p.size == 0) return;
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
    launch_rows(device, function, label, p);
    p.to += p.count * row_bytes;
  }
}

}  // namespace

void join_device_rows(int device, const std::vector<const char*>& rows, size_t bytes, char* to) {
  static cuda::Function kernels[cuda::kMaxDevices][17];  // (GIL)
  const int at = device - 1;
  cuda::activate(at);
  std::vector<uint64_t> words;
  words.reserve(rows.size());
  uint64_t all = bytes | reinterpret_cast<uint64_t>(to);
  for (const char* row : rows) {
    words.push_back(reinterpret_cast<uint64_t>(row));
    all |= words.back();
  }
  size_t unit = 16;
  while (all & (unit - 1)) unit /= 2;
  cuda::Function& kernel = kernels[at][unit];
  if (!kernel) kernel = cuda::load_own_kernel(at, "join_rows", static_cast<int>(unit));
  Parameters p;
  p.to = to;
  p.size = bytes / unit;
  launch_all(at, kernel, "join_rows", p, words, 1, bytes);
}

void add_device_rows(int device, std::vector<AddedRow>& rows, DType dtype, int64_t elements) {
  static cuda::Function kernels[cuda::kMaxDevices][kNumDTypes];  // (GIL)
  const int at = device - 1;
  cuda::activate(at);
  if (dtype == DType::Complex64 || dtype == DType::Complex128) {
    dtype = dtype == DType::Complex64 ? DType::Float32 : DType::Float64;
    elements *= 2;
  }
  std::stable_sort(rows.begin(), rows.end(), [](const AddedRow& a, const AddedRow& b) { return a.to < b.to; });
  cuda::Function& kernel = kernels[at][static_cast<int>(dtype)];
  if (!kernel) kernel = cuda::load_own_kernel(at, "add_rows", static_cast<int>(dtype));
  Parameters p;
  p.to = nullptr;
  p.size = static_cast<uint64_t>(elements);
  const size_t bytes = static_cast<size_t>(elements) * item_size(dtype);
  const bool overlap = std::adjacent_find(rows.begin(), rows.end(), [&](const AddedRow& a, const AddedRow& b) {
                         return a.to != b.to && b.to < a.to + bytes;
                       }) != rows.end();
  std::vector<uint64_t> words;
  words.reserve(2 * rows.size());
  for (const AddedRow& row : rows) {
    words.push_back(reinterpret_cast<uint64_t>(row.to));
    words.push_back(reinterpret_cast<uint64_t>(row.from));
    if (!overlap) continue;
    launch_all(at, kernel, "add_rows", p, words, 2, 0);  // one after the other
    words.clear();
  }
  launch_all(at, kernel, "add_rows", p, words, 2, 0);
}

}  // namespace tandem
