// cuda.fft_lines (x (*b, n) complex, dense) -> y, ints [forward]: along the last axis, without a factor, by cuFFT.
// Where cuFFT is not installed, the CPU's transform runs on copies. tandem/codegen/cuda/fft.py makes the others of it.
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "check.h"
#include "device/cuda/device.h"
#include "fork_guard.h"
#include "library/cuda/host.h"
#include "library/cuda/open.h"
#include "library/registry.h"

namespace tandem::library {
namespace {

struct Api {
  int (*plan_many)(int* plan, int rank, int* n, int* in_embed, int in_stride, int in_distance, int* out_embed,
                   int out_stride, int out_distance, int type, int batch);
  int (*set_stream)(int plan, cuda::Stream);
  int (*single)(int plan, void* in, void* out, int direction);
  int (*twofold)(int plan, void* in, void* out, int direction);
};

const Api* api() {  // null: not installed
  static const Api* made = []() -> const Api* {
    try {
      const cuda::LoadFrom load("cufft");
      auto a = std::make_unique<Api>();
      load(a->plan_many, "cufftPlanMany");
      load(a->set_stream, "cufftSetStream");
      load(a->single, "cufftExecC2C");
      load(a->twofold, "cufftExecZ2Z");
      return a.release();
    } catch (const Error&) {
      return nullptr;
    }
  }();
  return made;
}

void check(int status, const char* what) {
  if (status) fail(ErrorKind::Device, "cuFFT: ", what, " failed with status ", status);
}

void run_lines(const Call& call) {
  const View &x = call.inputs[0], &y = call.outputs[0];
  if (!api()) {
    const int64_t ints[] = {0, call.ints[0], x.ndim - 1};
    Call there = call;
    there.ints = ints;
    there.num_ints = 3;
    return cuda::call_on_host(find("fft"), there);
  }
  if (x.numel() == 0) return;
  TD_CHECK(x.is_contiguous() && y.is_contiguous(), "lines of a transform must be dense");
  const int64_t n = x.shape[x.ndim - 1], batch = x.numel() / n;
  const bool single = x.dtype == DType::Complex64;
  TD_CHECK(n < (int64_t{1} << 31) && batch < (int64_t{1} << 31), "a transform of ", batch, " lines of ", n);
  constexpr int kSingle = 0x29, kTwofold = 0x69;
  static std::mutex mutex;  // guards plans
  static ForkGuard fork(mutex);
  static auto* plans = new std::map<std::tuple<int, int64_t, int64_t, bool>, int>();
  std::lock_guard guard(mutex);
  auto [found, fresh] = plans->try_emplace({call.device, n, batch, single}, 0);
  if (fresh) {
    int size = static_cast<int>(n);
    const int status = api()->plan_many(&found->second, 1, &size, nullptr, 1, size, nullptr, 1, size,
                                        single ? kSingle : kTwofold, static_cast<int>(batch));
    if (status) plans->erase(found);
    check(status, "cufftPlanMany");
  }
  check(api()->set_stream(found->second, static_cast<cuda::Stream>(call.stream)), "cufftSetStream");
  const int direction = call.ints[0] ? -1 : 1;
  check((single ? api()->single : api()->twofold)(found->second, x.data, y.data, direction), "a transform");
}

const Register lines("cuda.fft_lines", &run_lines);

}  // namespace
}  // namespace tandem::library
