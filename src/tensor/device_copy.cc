#include "tensor/device_copy.h"

#include <algorithm>

#include "check.h"
#include "device/cuda/device.h"
#include "device/cuda/launches.h"
#include "device/cuda/own_kernels.h"

namespace tandem::cuda {
namespace {

// What the kernel of tandem/codegen/cuda/routines.py (copy_kernel) takes.
struct Parameters {
  const void* from;
  void* to;
  int64_t count;
  int64_t ndim;
  int64_t shape[kMaxDims], from_strides[kMaxDims], to_strides[kMaxDims];
};

Function kernels[kMaxDevices][17];  // by device and size of the elements (GIL)

}  // namespace

void copy_elements(int device, const View& from, const View& to) {
  Parameters p{};
  p.from = from.data, p.to = to.data, p.count = from.numel(), p.ndim = from.ndim;
  if (p.count == 0) return;
  const size_t size = item_size(from.dtype);
  activate(device);
  if (from.is_contiguous() && to.is_contiguous()) return copy_on_device(device, to.data, from.data, p.count * size);
  std::copy_n(from.shape, from.ndim, p.shape);
  std::copy_n(from.strides, from.ndim, p.from_strides);
  std::copy_n(to.strides, to.ndim, p.to_strides);
  Function& function = kernels[device][size];
  if (!function) function = load_own_kernel(device, "copy", static_cast<int>(size));
  note_launch("copy");
  constexpr int64_t kRowBlocks = 4224;  // that take turns with rows
  const bool rows = p.ndim == 2 && p.from_strides[1] == 1 && p.to_strides[1] == 1;
  const int64_t blocks = rows ? std::min(p.shape[0], kRowBlocks) : std::min<int64_t>((p.count + 255) / 256, 1 << 30);
  check(launch(device, function, static_cast<unsigned>(blocks), {256, 1}, 0, current_stream(device), &p),
        "launching copy");
}

}  // namespace tandem::cuda
