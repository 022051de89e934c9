#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdlib>
#include <mutex>
#include <type_traits>

#include "check.h"
#include "device/cuda/launcher.h"
#include "device/cuda/launches.h"
#include "device/cuda/virtual_memory.h"

namespace tandem::cuda {
namespace {

constexpr int kOldestDriver = 12000;  // CUDA 12.0: the first that loads what today's NVRTC makes for Hopper

struct Opened {
  void* library = nullptr;
  Driver functions;
  std::string problem;  // empty: ready
  int devices = 0;
};

// The driver, once initialised, does not survive a fork: every call of a child fails.
bool forked = false;  // from a process that had opened it; set before the child has a second thread
constexpr const char* kForked =
    "this process was forked from one that had used CUDA, which the driver does not survive"
    "\n  fix: start processes by \"spawn\" (multiprocessing.get_context(\"spawn\"), or "
    "multiprocessing_context=\"spawn\" of a"
    " DataLoader), or fork before anything asks for a device";

std::string status_text(const Driver& d, Status status) {
  const char *name = nullptr, *text = nullptr;
  if (d.error_name) d.error_name(status, &name);
  if (d.error_string) d.error_string(status, &text);
  return std::string(name ? name : "error") + " (" + std::to_string(status) + "): " + (text ? text : "no description");
}

void open(Opened& opened) {
  const char* other = std::getenv("TANDEM_CUDA_DRIVER");  // tests: a stand-in (tests/cuda_stand_in)
  void* library = dlopen(other && *other ? other : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) library = dlopen("/usr/local/nvidia/lib64/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // in containers
  if (!library) {
    opened.problem = std::string("no NVIDIA driver: libcuda.so.1 cannot be opened (") + dlerror() + ")";
    return;
  }
  opened.library = library;
  Driver& d = opened.functions;
  std::string missing;
#define TD_LOAD(name, symbol, parameters)                              \
  d.name = reinterpret_cast<decltype(d.name)>(dlsym(library, symbol)); \
  if (!d.name) missing += missing.empty() ? symbol : ", " symbol;
  TD_CUDA_FUNCTIONS(TD_LOAD)
#undef TD_LOAD
  int version = 0;
  if (d.driver_version) d.driver_version(&version);
  const std::string shown = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  if (!missing.empty() || version < kOldestDriver) {
    opened.problem = "the NVIDIA driver supports CUDA " + shown + "; 12.0 or newer is needed";
    if (!missing.empty()) opened.problem += " (it lacks " + missing + ")";
    return;
  }
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
  if (Status status = d.init(0)) {
    opened.problem = "the NVIDIA driver (CUDA " + shown + ") refuses to start: " + status_text(d, status);
    return;
  }
  if (Status status = d.device_count(&opened.devices))
    opened.problem = "the NVIDIA driver does not say which devices it has: " + status_text(d, status);
  else if (opened.devices == 0)
    opened.problem = "the NVIDIA driver (CUDA " + shown + ") sees no device";
}

const Opened& opened() {
  static const Opened* instance = [] {
    auto* made = new Opened;
    open(*made);
    return made;
  }();
  return *instance;
}

}  // namespace

const Driver& driver() {
  const Opened& o = opened();
  if (!o.problem.empty()) [[unlikely]]
    fail(ErrorKind::Device, "CUDA is not available: ", o.problem);
  settle();
  return o.functions;
}

const VirtualMemory* virtual_memory() {
  driver();
  static const VirtualMemory* made = []() -> const VirtualMemory* {
    static VirtualMemory v;
    bool complete = true;
    const auto load = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(opened().library, name));
      complete &= function != nullptr;
    };
    load(v.reserve, "cuMemAddressReserve");
    load(v.release, "cuMemAddressFree");
    load(v.create, "cuMemCreate");
    load(v.destroy, "cuMemRelease");
    load(v.map, "cuMemMap");
    load(v.unmap, "cuMemUnmap");
    load(v.set_access, "cuMemSetAccess");
    return complete ? &v : nullptr;
  }();
  return made;
}

std::string why_unavailable() {
  return forked ? kForked : opened().problem;
}

void fail_status(Status status, const char* what) {
  if (forked) fail(ErrorKind::Device, what, ": ", kForked);
  std::string text = std::string(what) + ": " + status_text(opened().functions, status);
  // 700 and its neighbours: a kernel went wrong earlier, and the context is lost.
  if (status >= 700 && status < 720) text += recent_launches(8);
  fail(ErrorKind::Device, text);
}

}  // namespace tandem::cuda
