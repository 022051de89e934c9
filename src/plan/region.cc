#include "plan/region.h"

#include <chrono>
#include <cstring>
#include <optional>

#include "check.h"
#include "device/cuda/device.h"
#include "interpreter.h"

namespace tandem {

namespace {

size_t bytes_of(const View& v) {
  size_t n = item_size(v.dtype);
  for (int i = 0; i < v.ndim; ++i) n *= static_cast<size_t>(v.shape[i]);
  return n;
}

// A plan inside a region, with the addresses of its operands, which may change between runs.
class Part {
 public:
  Part(const Region& region, size_t index, const PlanRun& outer, size_t tensors, int64_t size = 0)
      : plan_(*region.plans[index]), inputs_(tensors + region.ints[index].size()), run_(plan_, inputs_.data()) {
    const std::vector<int32_t>& ints = region.ints[index];
    for (size_t i = 0; i < ints.size(); ++i) inputs_[tensors + i].integer = ints[i] < 0 ? size : outer.slot(ints[i]);
    if (!run_.guards_hold()) fail(ErrorKind::Memory, "out of memory: sizes inside a region do not fit 64 bits");
  }
  void set(size_t input, char* address) { inputs_[input].cell = address; }
  // Of a loop: inputs [first, last) are set once for all iterations.
  void keep(size_t first, size_t last) {
    loop_.emplace(plan_, first, last);
    run_.set_loop(&*loop_);
  }
  void run() { run_.run_again(); }

 private:
  const Plan& plan_;
  std::vector<InputView> inputs_;
  std::optional<LoopState> loop_;
  PlanRun run_;
};

// Second copies of carried values: an iteration reads one and writes the other.
class Twins {
 public:
  explicit Twins(int device) : device_(device) {}
  char* of(size_t i, size_t bytes) {
    if (storages_.size() <= i) storages_.resize(i + 1);
    if (!storages_[i]) storages_[i] = Ref<Storage>::adopt(Storage::allocate(bytes, device_));
    return storages_[i]->data();
  }

 private:
  int device_;
  std::vector<Ref<Storage>> storages_;
};

// Lets Ctrl-C end a loop. The GIL is not held here.
class Interrupt {
 public:
  explicit Interrupt(uint64_t every = 256) : every_(every) {}
  void check() {
    if (++count_ % every_) return;
    auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(200)) return;
    last_ = now;
    const Locked locked;
    if (interpreter.interrupted()) throw PythonError{};
  }

 private:
  const uint64_t every_;
  uint64_t count_ = 0;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// What runs on a device is queued on the current stream; only what decides how it goes on is read back.

struct Operands {
  Operands(PlanRun& outer, const Instruction& in) : device(outer.device()) {
    for (size_t i = 0; i < in.values.size(); ++i) {
      bool input = i < static_cast<size_t>(in.num_inputs);
      (input ? inputs : outputs).push_back(outer.view(in.values[i]));
    }
  }
  std::vector<View> inputs, outputs;
  const int device;
};

void copy_bytes(int device, char* to, const char* from, size_t bytes) {
  if (device)
    cuda::copy_on_device(device - 1, to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

// A few bytes that kernels on a device write and the host reads: pinned memory, so that the copy is one command.
class ReadBack {
 public:
  explicit ReadBack(int device) : device_(device) {
    if (!device) return;
    there_ = Ref<Storage>::adopt(Storage::allocate(kBytes, device));
    // One piece of pinned memory a thread, for ever: what is copied there is read at once.
    static thread_local void* pinned = nullptr;
    constexpr unsigned kPortable = 1;
    cuda::activate(device - 1);
    if (!pinned) cuda::check(cuda::driver().host_allocate(&pinned, kBytes, kPortable), "allocating pinned memory");
    here_ = static_cast<char*>(pinned);
  }
  ReadBack(const ReadBack&) = delete;
  char* target(int at) { return (device_ ? there_->data() : own_) + 8 * at; }
  const char* read() {  // waits
    if (!device_) return own_;
    cuda::copy_to_host(device_ - 1, here_, there_->data(), kBytes, true);
    return here_;
  }
  template <typename T>
  T read(int at) {
    T value;
    std::memcpy(&value, (device_ ? here_ : own_) + 8 * at, sizeof value);
    return value;
  }

 private:
  static constexpr size_t kBytes = 16;
  int device_;
  char own_[kBytes] = {};
  Ref<Storage> there_;
  char* here_ = nullptr;
};

int64_t read_index(const Operands& o, bool on_host) {
  const View& v = o.inputs[0];
  char bytes[8];
  if (o.device && !on_host)
    cuda::copy_to_host(o.device - 1, bytes, v.data, item_size(v.dtype), true);
  else
    std::memcpy(bytes, v.data, item_size(v.dtype));
  switch (v.dtype) {
    case DType::Bool:
      return bytes[0] != 0;
    case DType::Int32: {
      int32_t index;
      std::memcpy(&index, bytes, sizeof index);
      return index;
    }
    default: {
      TD_CHECK(v.dtype == DType::Int64, "a region's index must be bool, int32 or int64");
      int64_t index;
      std::memcpy(&index, bytes, sizeof index);
      return index;
    }
  }
}

void write_count(const Operands& o, size_t output, int64_t count) {
  if (o.device)
    cuda::copy_to_device(o.device - 1, o.outputs[output].data, reinterpret_cast<const char*>(&count), sizeof count,
                         false);
  else
    *reinterpret_cast<int64_t*>(o.outputs[output].data) = count;
}

void run_cond(const Region& region, PlanRun& outer, Operands& o, bool on_host) {
  int64_t index = read_index(o, on_host);
  if (index < 0 || index >= static_cast<int64_t>(region.plans.size()))
    fail(ErrorKind::Index, "branch ", index, " was chosen, but there are ", region.plans.size(), " branches");
  size_t args = o.inputs.size() - 1;
  Part branch(region, static_cast<size_t>(index), outer, args + o.outputs.size());
  for (size_t i = 0; i < args; ++i) branch.set(i, o.inputs[i + 1].data);
  for (size_t i = 0; i < o.outputs.size(); ++i) branch.set(args + i, o.outputs[i].data);
  branch.run();
}

void run_block(const Region& region, PlanRun& outer, Operands& o, bool on_host) {
  size_t args = o.inputs.size() - 1;
  Part body(region, 0, outer, args + o.outputs.size(), read_index(o, on_host));
  for (size_t i = 0; i < args; ++i) body.set(i, o.inputs[i + 1].data);
  for (size_t i = 0; i < o.outputs.size(); ++i) body.set(args + i, o.outputs[i].data);
  body.run();
}

void run_scan(const Region& region, PlanRun& outer, Operands& o) {
  const size_t carried = static_cast<size_t>(region.carried), scanned = static_cast<size_t>(region.scanned);
  const size_t inputs = o.inputs.size(), rows = o.outputs.size() - carried;
  const int64_t length = outer.slot(region.extent);
  if (length <= 0) {
    for (size_t i = 0; i < carried; ++i)
      copy_bytes(o.device, o.outputs[i].data, o.inputs[i].data, bytes_of(o.inputs[i]));
    return;
  }
  Part body(region, 0, outer, inputs + 1 + carried + rows);
  int64_t position = 0;
  for (size_t i = carried + scanned; i < inputs; ++i) body.set(i, o.inputs[i].data);
  body.keep(carried + scanned, inputs);
  body.set(inputs, reinterpret_cast<char*>(&position));
  Twins twins(o.device);
  Interrupt interrupt;
  auto row = [&](const View& v) { return v.data + position * v.strides[0] * static_cast<int64_t>(item_size(v.dtype)); };
  for (size_t i = 0; i < carried; ++i) body.set(i, o.inputs[i].data);
  for (int64_t step = 0; step < length; ++step) {
    position = region.reverse ? length - 1 - step : step;
    const bool last_parity = (length - 1 - step) % 2 == 0;  // so that the last iteration writes the results themselves
    for (size_t i = 0; i < carried; ++i) {
      char* target = last_parity ? o.outputs[i].data : twins.of(i, bytes_of(o.inputs[i]));
      body.set(inputs + 1 + i, target);
    }
    for (size_t i = 0; i < scanned; ++i) body.set(carried + i, row(o.inputs[carried + i]));
    for (size_t i = 0; i < rows; ++i) body.set(inputs + 1 + carried + i, row(o.outputs[carried + i]));
    body.run();
    for (size_t i = 0; i < carried; ++i)
      body.set(i, last_parity ? o.outputs[i].data : twins.of(i, bytes_of(o.inputs[i])));
    interrupt.check();
  }
}

void run_while(const Region& region, PlanRun& outer, Operands& o) {
  const size_t carried = static_cast<size_t>(region.carried), inputs = o.inputs.size();
  const int64_t most = region.extent < 0 ? INT64_MAX : outer.slot(region.extent);
  Part cond(region, 0, outer, inputs + 2), body(region, 1, outer, inputs + 1 + carried);
  int64_t iteration = 0;
  ReadBack goes_on(o.device);
  for (size_t i = 0; i < inputs; ++i) {
    cond.set(i, o.inputs[i].data);
    body.set(i, o.inputs[i].data);
  }
  body.keep(carried, inputs);
  cond.set(inputs, reinterpret_cast<char*>(&iteration));
  cond.set(inputs + 1, goes_on.target(0));
  body.set(inputs, reinterpret_cast<char*>(&iteration));
  Twins twins(o.device);
  Interrupt interrupt;
  for (; iteration < most; ++iteration) {
    cond.run();
    if (!*goes_on.read()) break;
    auto target = [&](size_t i) { return iteration % 2 == 0 ? o.outputs[i].data : twins.of(i, bytes_of(o.inputs[i])); };
    for (size_t i = 0; i < carried; ++i) body.set(inputs + 1 + i, target(i));
    body.run();
    for (size_t i = 0; i < carried; ++i) {
      cond.set(i, target(i));
      body.set(i, target(i));
    }
    interrupt.check();
  }
  for (size_t i = 0; i < carried && iteration % 2 == 0; ++i) {
    const char* from = iteration == 0 ? o.inputs[i].data : twins.of(i, bytes_of(o.inputs[i]));
    copy_bytes(o.device, o.outputs[i].data, from, bytes_of(o.inputs[i]));
  }
  write_count(o, carried, iteration);
}

void run_repeat(const Region& region, PlanRun& outer, Operands& o) {
  const size_t carried = static_cast<size_t>(region.carried), inputs = o.inputs.size();
  const int64_t most = region.extent < 0 ? INT64_MAX : outer.slot(region.extent);
  Part part(region, 0, outer, inputs + 1 + carried + 2);
  int64_t iteration = 0;
  ReadBack state(o.device);  // iterations so far, whether the condition holds
  for (size_t i = 0; i < inputs; ++i) part.set(i, o.inputs[i].data);
  part.set(inputs, reinterpret_cast<char*>(&iteration));
  // Everything is read before anything is written, so later rounds may read what they write.
  for (size_t i = 0; i < carried; ++i) part.set(inputs + 1 + i, o.outputs[i].data);
  part.set(inputs + 1 + carried, state.target(0));
  part.set(inputs + 2 + carried, state.target(1));
  Interrupt interrupt(1);
  bool goes_on;
  do {
    part.run();
    state.read();
    iteration = state.read<int64_t>(0);
    goes_on = state.read<uint8_t>(1) != 0;
    for (size_t i = 0; i < carried; ++i) part.set(i, o.outputs[i].data);
    interrupt.check();
  } while (goes_on && iteration < most);
  write_count(o, carried, iteration);
}

}  // namespace

void run_region(const Region& region, PlanRun& outer, const Instruction& instruction) {
  Operands operands(outer, instruction);
  switch (region.kind) {
    case Region::Kind::Cond:
      return run_cond(region, outer, operands, outer.on_host(instruction.values[0]));
    case Region::Kind::Scan:
      return run_scan(region, outer, operands);
    case Region::Kind::While:
      return run_while(region, outer, operands);
    case Region::Kind::Block:
      return run_block(region, outer, operands, outer.on_host(instruction.values[0]));
    case Region::Kind::Repeat:
      return run_repeat(region, outer, operands);
  }
}

}  // namespace tandem
