// What tandem/cuda sees of devices: properties, streams, events, memory, loading of kernels.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "capture/capture.h"
#include "check.h"
#include "device/cuda/device.h"
#include "device/cuda/driver.h"
#include "device/cuda/launcher.h"
#include "device/cuda/memory.h"
#include "library/cuda/open.h"
#include "operators/op_function.h"
#include "profile/profile.h"
#include "tensor/move.h"
#include "tensor/pinned.h"

namespace nb = nanobind;

namespace tandem {
namespace {

Tensor* as_tensor(nb::handle h) {
  if (!is_tensor(h.ptr())) throw nb::type_error("a tensor is expected");
  return reinterpret_cast<Tensor*>(h.ptr());
}

nb::object steal(Tensor* t) {
  return nb::steal(reinterpret_cast<PyObject*>(t));
}

// Streams are never destroyed: memory that was used on one is freed later, and an event is recorded on the stream then.
// Those that nobody holds are handed out again.
class OwnedStream {
 public:
  OwnedStream(int device, int priority) : device_(device), priority_(priority) {
    std::vector<cuda::Stream>& left = spare()[{device, priority}];
    if (!left.empty()) {
      stream_ = left.back();
      left.pop_back();
      return;
    }
    cuda::activate(device);
    constexpr unsigned kNonBlocking = 1;
    cuda::check(cuda::driver().stream_create(&stream_, kNonBlocking, priority), "making a stream");
  }
  ~OwnedStream() {
    if (stream_) spare()[{device_, priority_}].push_back(stream_);
  }
  OwnedStream(const OwnedStream&) = delete;
  int device() const { return device_; }
  uintptr_t handle() const { return reinterpret_cast<uintptr_t>(stream_); }

 private:
  // By device and priority; guarded by the GIL.
  static std::map<std::pair<int, int>, std::vector<cuda::Stream>>& spare() {
    static auto* all = new std::map<std::pair<int, int>, std::vector<cuda::Stream>>();
    return *all;
  }
  int device_, priority_;
  cuda::Stream stream_ = nullptr;
};

cuda::Stream stream_of(uintptr_t handle) {
  return reinterpret_cast<cuda::Stream>(handle);
}

class OwnedEvent {
 public:
  OwnedEvent(int device, bool timing) : device_(device) {
    cuda::activate(device);
    constexpr unsigned kNoTiming = 2;
    cuda::check(cuda::driver().event_create(&event_, timing ? 0 : kNoTiming), "making an event");
  }
  ~OwnedEvent() {
    if (event_) cuda::driver().event_destroy(event_);
  }
  OwnedEvent(const OwnedEvent&) = delete;
  void record(uintptr_t stream) {
    cuda::activate(device_);
    cuda::check(cuda::driver().event_record(event_, stream_of(stream)), "recording an event");
  }
  void wait(uintptr_t stream) {
    cuda::activate(device_);
    cuda::check(cuda::driver().stream_wait_event(stream_of(stream), event_, 0), "waiting for an event");
  }
  bool done() const {
    cuda::Status status = cuda::driver().event_query(event_);
    if (status == cuda::kNotReady) return false;
    cuda::check(status, "asking for an event");
    return true;
  }
  void synchronize() const {
    nb::gil_scoped_release release;
    cuda::check(cuda::driver().event_synchronize(event_), "waiting for an event");
  }
  float elapsed(const OwnedEvent& end) const {
    float milliseconds = 0;
    cuda::check(cuda::driver().event_elapsed(&milliseconds, event_, end.event_), "timing between events");
    return milliseconds;
  }

 private:
  int device_;
  cuda::Event event_ = nullptr;
};

nb::dict stats_dict(int device) {
  MemoryStats stats = cuda::memory_stats(device);
  nb::dict d;
  d["live_bytes"] = stats.live_bytes;
  d["reserved_bytes"] = stats.reserved_bytes;
  d["peak_bytes"] = stats.peak_bytes;
  d["live_blocks"] = stats.live_blocks;
  d["allocations"] = stats.allocations;
  d["system_allocations"] = stats.system_allocations;
  d["system_frees"] = stats.system_frees;
  d["peak_reserved_bytes"] = cuda::peak_reserved(device);
  return d;
}

// Functions of a compiled module, in the context of a device. The module stays for the life of the process.
// `shared`: bytes of shared memory that launches of these kernels ask for.
std::vector<uintptr_t> load_module(nb::bytes image, const std::vector<std::string>& names, int device, int shared) {
  cuda::activate(device);
  cuda::Module module = nullptr;
  cuda::check(cuda::driver().module_load(&module, image.c_str()), "loading kernels");
  std::vector<uintptr_t> functions;
  for (const std::string& name : names) {
    cuda::Function function = nullptr;
    cuda::check(cuda::driver().module_function(&function, module, name.c_str()), name.c_str());
    constexpr int kMostDynamicShared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    if (shared) cuda::check(cuda::driver().function_attribute(function, kMostDynamicShared, shared), name.c_str());
    functions.push_back(reinterpret_cast<uintptr_t>(function));
  }
  return functions;
}

}  // namespace

void register_cuda(nb::module_& m) {
  m.def("cuda_unavailable", &cuda::why_unavailable, "Why CUDA cannot be used; empty if it can.");
  m.def("cuda_device_count", &cuda::device_count);
  m.def("cuda_properties", [](int device) {
    const cuda::Properties& p = cuda::properties(device);
    return nb::make_tuple(p.name, p.major, p.minor, p.multiprocessors, p.memory);  // -> DeviceProperties
  });
  m.def("cuda_driver_version", [] {
    int version = 0;
    cuda::driver().driver_version(&version);
    return version;
  });
  m.def(
      "cuda_synchronize",
      [](int device) {
        const profile::Scope waiting(profile::Kind::Wait, "synchronize");
        cuda::synchronize_device(device);
      },
      nb::arg("device"));
  m.def("cuda_synchronize_stream",
        [](int device, uintptr_t stream) { cuda::synchronize_stream(device, stream_of(stream)); });
  m.def("cuda_stream_done", [](uintptr_t stream) { return cuda::driver().stream_query(stream_of(stream)) == 0; });
  m.def("cuda_current_stream", [](int device) { return reinterpret_cast<uintptr_t>(cuda::current_stream(device)); });
  m.def("cuda_set_stream", [](int device, uintptr_t stream) { cuda::current_streams[device] = stream_of(stream); });
  m.def("cuda_share_streams", &cuda::share_streams);
  m.def("cuda_memory_stats", &stats_dict);
  m.def("cuda_memory_info", [](int device) {
    cuda::activate(device);
    size_t available = 0, total = 0;
    cuda::check(cuda::driver().memory_info(&available, &total), "asking for free memory");
    return nb::make_tuple(available, total);
  });
  m.def("cuda_reset_peak_memory", &cuda::reset_peak_memory);
  m.def("cuda_empty_cache", [](int device) {
    cuda::empty_cache(device);
    empty_pinned_cache();
  });
  m.def("cuda_set_memory_fraction", &cuda::set_memory_fraction);
  m.def("cuda_set_expandable_segments", &cuda::set_expandable_segments);
  m.def("cuda_expandable_segments", &cuda::expandable_segments);
  m.def("cuda_load_module", &load_module, nb::arg("image"), nb::arg("names"), nb::arg("device"), nb::arg("shared") = 0);
  m.def("cuda_record_stream", [](nb::handle tensor, uintptr_t stream) {
    Storage* storage = as_tensor(tensor)->storage;
    if (storage->block()) cuda::record_stream(static_cast<cuda::Block*>(storage->block()), stream_of(stream));
  });
  m.def(
      "move",
      [](nb::handle tensor, int device, bool non_blocking) {
        Tensor* t = as_tensor(tensor);
        materialize(t);
        try {
          return steal(move_tensor(t, device, non_blocking));
        } catch (const PythonError&) {
          nb::raise_python_error();
        }
      },
      nb::arg("tensor"), nb::arg("device"), nb::arg("non_blocking") = false,
      "A copy on the CPU (0) or on cuda:(device - 1), without history.");
  m.def("pin", [](nb::handle tensor) {
    materialize(as_tensor(tensor));
    return steal(pin_tensor(as_tensor(tensor)));
  });
  m.def("is_pinned", [](nb::handle tensor) { return as_tensor(tensor)->storage->pinned(); });
  m.def(
      "device_index", [](nb::handle tensor) { return as_tensor(tensor)->storage->device(); },
      "0 for the CPU, k for cuda:(k - 1).");
  m.def("default_device", [] { return static_cast<int>(call_mode.device); });
  m.def("set_default_device", [](int device) {
    if (device > 0) cuda::properties(device - 1);
    return static_cast<int>(std::exchange(call_mode.device, static_cast<uint8_t>(device)));
  });
  m.def("set_device_scope",
        [](int device) { return static_cast<int>(std::exchange(device_scope, static_cast<int16_t>(device))); });
  m.def("axes_first", [] { return call_mode.axes_first != 0; });
  m.def("autocast_mode", [] { return static_cast<int>(call_mode.autocast); });
  m.def("set_autocast_mode",
        [](int mode) { return static_cast<int>(std::exchange(call_mode.autocast, static_cast<uint8_t>(mode))); });
  m.def(
      "cuda_open_products_ahead",
      [](int device, int dtype, std::vector<std::string> paths) {
        cuda::open_products_ahead(device, static_cast<DType>(dtype), std::move(paths));
      },
      nb::arg("device"), nb::arg("dtype"), nb::arg("paths"),
      "Begins to open cuBLASLt from the first of `paths`, beside whatever comes next, once a process.");
  m.def("cuda_set_allow_tf32", [](bool allow) { cuda::allow_tf32 = allow; });
  m.def("cuda_allow_tf32", [] { return cuda::allow_tf32; });
  nb::class_<OwnedStream>(m, "CudaStream")
      .def(nb::init<int, int>())
      .def_prop_ro("device", &OwnedStream::device)
      .def_prop_ro("handle", &OwnedStream::handle);
  nb::class_<OwnedEvent>(m, "CudaEvent")
      .def(nb::init<int, bool>())
      .def("record", &OwnedEvent::record)
      .def("wait", &OwnedEvent::wait)
      .def("done", &OwnedEvent::done)
      .def("synchronize", &OwnedEvent::synchronize)
      .def("elapsed", &OwnedEvent::elapsed);
}

}  // namespace tandem
