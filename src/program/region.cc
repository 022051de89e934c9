#include "program/region.h"

#include <chrono>
#include <cstring>

#include "check.h"
#include "dispatch/op_function.h"

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
      : inputs_(tensors + region.ints[index].size()), run_(*region.plans[index], inputs_.data()) {
    const std::vector<int32_t>& ints = region.ints[index];
    for (size_t i = 0; i < ints.size(); ++i) inputs_[tensors + i].integer = ints[i] < 0 ? size : outer.slot(ints[i]);
    if (!run_.guards_hold()) fail(ErrorKind::Memory, "out of memory: sizes inside a region do not fit 64 bits");
  }
  void set(size_t input, char* address) { inputs_[input].cell = address; }
  void run() {
    run_.restart();
    run_.run_instructions();
  }

 private:
  std::vector<InputView> inputs_;
  PlanRun run_;
};

// Second copies of carried values: an iteration reads one and writes the other.
class Twins {
 public:
  char* of(size_t i, size_t bytes) {
    if (storages_.size() <= i) storages_.resize(i + 1);
    if (!storages_[i]) storages_[i] = Ref<Storage>::adopt(Storage::allocate(bytes));
    return storages_[i]->data();
  }

 private:
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
    PyGILState_STATE state = PyGILState_Ensure();
    bool stop = PyErr_CheckSignals() != 0;
    PyGILState_Release(state);
    if (stop) throw PythonError{};
  }

 private:
  const uint64_t every_;
  uint64_t count_ = 0;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

struct Operands {
  Operands(PlanRun& outer, const Instruction& in) {
    for (size_t i = 0; i < in.values.size(); ++i) {
      bool input = i < static_cast<size_t>(in.num_inputs);
      (input ? inputs : outputs).push_back(outer.view(in.values[i]));
    }
  }
  std::vector<View> inputs, outputs;
};

int64_t read_index(const View& v) {
  switch (v.dtype) {
    case DType::Bool:
      return *reinterpret_cast<const uint8_t*>(v.data) != 0;
    case DType::Int32:
      return *reinterpret_cast<const int32_t*>(v.data);
    default:
      TD_CHECK(v.dtype == DType::Int64, "a region's index must be bool, int32 or int64");
      return *reinterpret_cast<const int64_t*>(v.data);
  }
}

void run_cond(const Region& region, PlanRun& outer, Operands& o) {
  int64_t index = read_index(o.inputs[0]);
  if (index < 0 || index >= static_cast<int64_t>(region.plans.size()))
    fail(ErrorKind::Index, "branch ", index, " was chosen, but there are ", region.plans.size(), " branches");
  size_t args = o.inputs.size() - 1;
  Part branch(region, static_cast<size_t>(index), outer, args + o.outputs.size());
  for (size_t i = 0; i < args; ++i) branch.set(i, o.inputs[i + 1].data);
  for (size_t i = 0; i < o.outputs.size(); ++i) branch.set(args + i, o.outputs[i].data);
  branch.run();
}

void run_block(const Region& region, PlanRun& outer, Operands& o) {
  size_t args = o.inputs.size() - 1;
  Part body(region, 0, outer, args + o.outputs.size(), read_index(o.inputs[0]));
  for (size_t i = 0; i < args; ++i) body.set(i, o.inputs[i + 1].data);
  for (size_t i = 0; i < o.outputs.size(); ++i) body.set(args + i, o.outputs[i].data);
  body.run();
}

void run_scan(const Region& region, PlanRun& outer, Operands& o) {
  const size_t carried = static_cast<size_t>(region.carried), scanned = static_cast<size_t>(region.scanned);
  const size_t inputs = o.inputs.size(), rows = o.outputs.size() - carried;
  const int64_t length = outer.slot(region.extent);
  if (length <= 0) {
    for (size_t i = 0; i < carried; ++i) std::memcpy(o.outputs[i].data, o.inputs[i].data, bytes_of(o.inputs[i]));
    return;
  }
  Part body(region, 0, outer, inputs + 1 + carried + rows);
  int64_t position = 0;
  for (size_t i = carried + scanned; i < inputs; ++i) body.set(i, o.inputs[i].data);
  body.set(inputs, reinterpret_cast<char*>(&position));
  Twins twins;
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
  uint8_t goes_on = 0;
  for (size_t i = 0; i < inputs; ++i) {
    cond.set(i, o.inputs[i].data);
    body.set(i, o.inputs[i].data);
  }
  cond.set(inputs, reinterpret_cast<char*>(&iteration));
  cond.set(inputs + 1, reinterpret_cast<char*>(&goes_on));
  body.set(inputs, reinterpret_cast<char*>(&iteration));
  Twins twins;
  Interrupt interrupt;
  for (; iteration < most; ++iteration) {
    cond.run();
    if (!goes_on) break;
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
    std::memcpy(o.outputs[i].data, from, bytes_of(o.inputs[i]));
  }
  *reinterpret_cast<int64_t*>(o.outputs[carried].data) = iteration;
}

void run_repeat(const Region& region, PlanRun& outer, Operands& o) {
  const size_t carried = static_cast<size_t>(region.carried), inputs = o.inputs.size();
  const int64_t most = region.extent < 0 ? INT64_MAX : outer.slot(region.extent);
  Part part(region, 0, outer, inputs + 1 + carried + 2);
  int64_t iteration = 0;
  uint8_t goes_on = 0;
  for (size_t i = 0; i < inputs; ++i) part.set(i, o.inputs[i].data);
  part.set(inputs, reinterpret_cast<char*>(&iteration));
  // Everything is read before anything is written, so later rounds may read what they write.
  for (size_t i = 0; i < carried; ++i) part.set(inputs + 1 + i, o.outputs[i].data);
  part.set(inputs + 1 + carried, reinterpret_cast<char*>(&iteration));
  part.set(inputs + 2 + carried, reinterpret_cast<char*>(&goes_on));
  Interrupt interrupt(1);
  do {
    part.run();
    for (size_t i = 0; i < carried; ++i) part.set(i, o.outputs[i].data);
    interrupt.check();
  } while (goes_on && iteration < most);
  *reinterpret_cast<int64_t*>(o.outputs[carried].data) = iteration;
}

}  // namespace

void run_region(const Region& region, PlanRun& outer, const Instruction& instruction) {
  Operands operands(outer, instruction);
  switch (region.kind) {
    case Region::Kind::Cond:
      return run_cond(region, outer, operands);
    case Region::Kind::Scan:
      return run_scan(region, outer, operands);
    case Region::Kind::While:
      return run_while(region, outer, operands);
    case Region::Kind::Block:
      return run_block(region, outer, operands);
    case Region::Kind::Repeat:
      return run_repeat(region, outer, operands);
  }
}

}  // namespace tandem
