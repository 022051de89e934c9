#include "device/cuda/device.h"

#include <mutex>
#include <vector>

#include "check.h"
#include "device/cuda/launcher.h"
#include "device/cuda/launches.h"
#include "interpreter.h"
#include "modes.h"

namespace tandem::cuda {

void (*after_wait)() = nullptr;
constinit thread_local int active_device = -1;
constinit thread_local Stream current_streams[kMaxDevices] = {};

namespace {

struct State {
  std::once_flag made;
  DeviceHandle handle = 0;
  Context context = nullptr;
  std::once_flag described;
  Properties properties;
};
State states[kMaxDevices];

// Ranks that are threads must not queue their work behind one another's, as they wait for one another. What others have
// queued before they began is theirs, too.
void begin_stream_of_rank(int device) {
  constexpr unsigned kNonBlocking = 1;
  check(driver().synchronize_context(), "waiting for the device");
  check(driver().stream_create(&current_streams[device], kNonBlocking, 0), "making a stream");
}

void require(int device) {
  driver();
  int count = device_count();
  if (device < 0 || device >= count)
    fail(ErrorKind::Device, "there is no device 'cuda:", device, "'; this machine has ", count, " CUDA device",
         count == 1 ? " ('cuda:0')" : "s");
}

}  // namespace

int device_count() {
  if (!why_unavailable().empty()) return 0;
  int count = 0;
  driver().device_count(&count);
  return count < kMaxDevices ? count : kMaxDevices;
}

const Properties& properties(int device) {
  require(device);
  State& s = states[device];
  std::call_once(s.described, [&] {
    const Driver& d = driver();
    check(d.device_get(&s.handle, device), "cuDeviceGet");
    char name[256] = "";
    d.device_name(name, sizeof name - 1, s.handle);
    s.properties.name = name;
    d.device_attribute(&s.properties.major, 75, s.handle);
    d.device_attribute(&s.properties.minor, 76, s.handle);
    d.device_attribute(&s.properties.multiprocessors, 16, s.handle);
    d.device_memory(&s.properties.memory, s.handle);
  });
  return s.properties;
}

void activate_slow(int device) {
  properties(device);
  State& s = states[device];
  std::call_once(s.made, [&] { check(driver().retain_context(&s.context, s.handle), "making a context"); });
  check(driver().set_context(s.context), "cuCtxSetCurrent");
  active_device = device;
  if (rank_in_process && !current_streams[device]) begin_stream_of_rank(device);
}

void follow_stream(int device, Stream earlier) {
  const Stream stream = current_stream(device);
  if (stream == earlier) return;
  activate(device);
  const Driver& d = driver();
  constexpr unsigned kNoTiming = 2;
  Event event = nullptr;
  check(d.event_create(&event, kNoTiming), "making an event");
  Status status = d.event_record(event, earlier);
  if (!status) status = d.stream_wait_event(stream, event, 0);
  d.event_destroy(event);  // the driver keeps it until it has come
  check(status, "waiting for an event");
}

void synchronize_stream(int device, Stream stream) {
  activate(device);
  Status status;
  {
    const Unlocked unlocked;
    status = driver().stream_synchronize(stream);
  }
  raise_device_errors(device);
  check(launch_failure(), "launching a kernel");
  check(status, "waiting for the device");
  if (after_wait) after_wait();
}

void synchronize_device(int device) {
  activate(device);
  Status status;
  {
    const Unlocked unlocked;
    status = driver().synchronize_context();
  }
  raise_device_errors(device);
  check(launch_failure(), "launching a kernel");
  check(status, "waiting for the device");
  if (after_wait) after_wait();
}

void copy_to_device(int device, char* to, const char* from, size_t bytes, bool wait) {
  if (bytes == 0) return;
  activate(device);
  check(driver().copy_to_device(reinterpret_cast<Address>(to), from, bytes, current_stream(device)),
        "copying to the device");
  if (wait) synchronize_stream(device, current_stream(device));
}

void copy_to_host(int device, char* to, const char* from, size_t bytes, bool wait) {
  if (bytes == 0) return;
  activate(device);
  check(driver().copy_to_host(to, reinterpret_cast<Address>(from), bytes, current_stream(device)),
        "copying from the device");
  if (wait) synchronize_stream(device, current_stream(device));
}

void copy_on_device(int device, char* to, const char* from, size_t bytes) {
  if (bytes == 0) return;
  activate(device);
  check(driver().copy_on_device(reinterpret_cast<Address>(to), reinterpret_cast<Address>(from), bytes,
                                current_stream(device)),
        "copying on the device");
}

void copy_between(int to_device, char* to, int from_device, const char* from, size_t bytes) {
  if (bytes == 0) return;
  synchronize_stream(from_device, current_stream(from_device));
  activate(to_device);
  check(driver().copy_any(reinterpret_cast<Address>(to), reinterpret_cast<Address>(from), bytes,
                          current_stream(to_device)),
        "copying between devices");
  synchronize_stream(to_device, current_stream(to_device));  // the source may be freed after we return
}

}  // namespace tandem::cuda
