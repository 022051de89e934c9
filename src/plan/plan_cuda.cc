// Plans on CUDA devices: the same instructions, queued on the current stream.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "device/cuda/device.h"
#include "device/cuda/launcher.h"
#include "device/cuda/launches.h"
#include "device/cuda/side_work.h"
#include "known_source.h"
#include "plan/library_call.h"
#include "plan/plan.h"
#include "plan/region.h"
#include "profile/profile.h"
#include "source.h"

namespace tandem {
// A kernel takes one struct: an 8-byte word per operand (an address, or the value itself of what lies on the host),
// then the integers, then, if it checks indices, the address of the device's report and the launch's number.
// Words of a launch: of several in one, where the blocks of each begin; then, of each, its operands and integers.
static size_t words_before(const Instruction& in) {
  return in.parts.empty() ? 0 : in.parts.size() + 1;
}
static size_t count_words(const Instruction& in) {
  return words_before(in) + in.values.size() + in.ints.size();
}

int64_t PlanRun::blocks(const Instruction& in) const {
  if (in.parts.empty()) return ints_[in.extent];
  int64_t total = 0;
  for (int32_t s : in.parts) total += std::max<int64_t>(ints_[s], 0);
  return total;
}

void PlanRun::fill_words(const Instruction& in, uint64_t* words) {
  size_t n = 0;
  if (!in.parts.empty()) {
    uint64_t start = 0;
    for (int32_t s : in.parts) {
      words[n++] = start;
      start += static_cast<uint64_t>(std::max<int64_t>(ints_[s], 0));
    }
    words[n++] = start;
  }
  const size_t parts = std::max<size_t>(in.parts.size(), 1);
  const size_t values = in.values.size() / parts, ints = in.ints.size() / parts;
  for (size_t part = 0; part < parts; ++part) {
    for (size_t i = part * values; i < (part + 1) * values; ++i, ++n) {
      const int32_t v = in.values[i];
      const PlanValue& value = plan_.values[v];
      if (value.on_host) {
        if (item_size(value.dtype) > sizeof(uint64_t))
          fail(ErrorKind::Unsupported, "complex numbers of 128 bits cannot be passed to CUDA devices by value",
               "\n  fix: make a tensor of it: td.tensor(z, device=x.device)");
        words[n] = 0;
        std::memcpy(&words[n], address(v), item_size(value.dtype));
      } else {
        words[n] = reinterpret_cast<uint64_t>(data_[v]);
      }
    }
    for (size_t i = part * ints; i < (part + 1) * ints; ++i) words[n++] = static_cast<uint64_t>(ints_[in.ints[i]]);
  }
}

size_t PlanRun::add_extra_words(const Instruction& in, uint64_t number, uint64_t* words, size_t n) {
  const int device = plan_.device - 1;
  if (in.extra & Instruction::kReports) {
    words[n++] = reinterpret_cast<uint64_t>(cuda::reports(device));
    words[n++] = number;
    cuda::note_checked_launch(number, in.origin ? in.origin : interpreter.called_from(plan_.name));
  }
  if (in.extra & Instruction::kGuarded) words[n++] = cuda::failure_flag(device);
  return n;
}

bool PlanRun::update_words(HostNode& node) {
  bool changed = false;
  const Instruction& in = *node.instruction;
  const size_t parts = std::max<size_t>(in.parts.size(), 1);
  const size_t values = in.values.size() / parts, ints = in.ints.size() / parts;
  for (size_t i = 0; i < in.values.size(); ++i) {
    const PlanValue& value = plan_.values[in.values[i]];
    if (!value.on_host) continue;
    uint64_t word = 0;
    std::memcpy(&word, address(in.values[i]), item_size(value.dtype));
    uint64_t& old = node.words[words_before(in) + i + i / values * ints];
    changed |= word != old;
    old = word;
  }
  return changed;
}

// After recording: memory that the graph uses is not this run's.
void PlanRun::forget_addresses() {
  for (size_t i = 0; i < plan_.values.size(); ++i) {
    if (storage_[i]) std::exchange(storage_[i], nullptr)->release();
    data_[i] = nullptr;
  }
}

// The address that a value had while recording, also if it was given back since; null for what is no part of the graph.
char* PlanRun::recorded_address(int32_t index) {
  const PlanValue& value = plan_.values[index];
  if (value.kind == ValueKind::View) {
    char* base = recorded_address(value.source);
    return base ? base + ints_[value.offset] * static_cast<int64_t>(item_size(value.dtype)) : nullptr;
  }
  return value.on_host ? nullptr : data_[index];
}

void PlanRun::give_back(int32_t value) {
  if (!storage_[value]) return;
  const char* first = storage_[value]->data();
  if (!side_.empty())
    side_.join_users_of({first, first + storage_[value]->bytes()}, cuda::current_stream(plan_.device - 1));
  std::exchange(storage_[value], nullptr)->release();
  data_[value] = nullptr;
}

// The memory between the first and the last element of a view.
static cuda::SideWork::Span span_of(const View& v) {
  int64_t low = 0, high = 0;
  for (int i = 0; i < v.ndim; ++i) {
    if (v.shape[i] == 0) return {v.data, v.data};
    (v.strides[i] < 0 ? low : high) += (v.shape[i] - 1) * v.strides[i];
  }
  const auto item = static_cast<int64_t>(item_size(v.dtype));
  return {v.data + low * item, v.data + (high + 1) * item};
}

// See Note [Side work].
void PlanRun::join_side_work(const Instruction& in) {
  if (in.kind == Instruction::Kind::Free) return;  // give_back
  const cuda::Stream stream = cuda::current_stream(plan_.device - 1);
  for (int32_t v : in.values) {
    if (plan_.values[v].on_host) continue;
    side_.join_users_of(span_of(view(v)), stream);  // a new value may get memory that was given back
  }
}

void PlanRun::end_side_work() {
  if (!side_.empty()) side_.join(cuda::current_stream(plan_.device - 1));
}

void PlanRun::run_on_device() {
  try {
    for (const Instruction& in : plan_.instructions) run_on_device(in, nullptr);
  } catch (...) {
    end_side_work();
    throw;
  }
  end_side_work();
}

void PlanRun::run_on_device(const Instruction& in, std::vector<HostNode>* host_nodes) {
  const int device = plan_.device - 1;
  cuda::activate(device);
  const cuda::Stream stream = cuda::current_stream(device);
  if (!side_.empty()) [[unlikely]]
    join_side_work(in);
  const int timed_on = in.kind == Instruction::Kind::Region ? 0 : plan_.device;  // a region's steps are timed
  const profile::Scope timed(in.profiled(), in.label, in.origin.get(), timed_on, stream);
  switch (in.kind) {
    case Instruction::Kind::Kernel: {
      const int64_t extent = blocks(in);
      for (int32_t v : in.values) address(v);
      if (extent <= 0) break;
      TD_CHECK(extent < (int64_t{1} << 31), "a grid of ", extent, " blocks");
      constexpr size_t kInline = 256;
      uint64_t inline_words[kInline];
      std::unique_ptr<uint64_t[]> many;
      uint64_t* words = inline_words;
      constexpr size_t kMostExtra = 3;
      if (count_words(in) + kMostExtra > kInline) {
        many.reset(new uint64_t[count_words(in) + kMostExtra]);
        words = many.get();
      }
      fill_words(in, words);
      const uint64_t number = cuda::note_launch(in.label.c_str());
      const size_t n = in.extra ? add_extra_words(in, number, words, count_words(in)) : count_words(in);
      const cuda::KernelLaunch kernel{static_cast<cuda::Function>(in.function),
                                      static_cast<unsigned>(extent),
                                      {in.threads[0], in.threads[1]},
                                      in.shared,
                                      stream,
                                      device};
      if (!cuda::recording && cuda::hand_over(kernel, words, n)) break;
      cuda::Status status = cuda::launch_failure();
      if (!status)
        status = cuda::launch(device, kernel.function, kernel.blocks, kernel.threads, in.shared, stream, words);
      if (status) [[unlikely]]
        cuda::fail_status(status, ("launching " + in.label).c_str());
      if (host_nodes) [[unlikely]] {
        const auto from_host = [&](int32_t v) { return plan_.values[v].on_host; };
        if (!std::any_of(in.values.begin(), in.values.end(), from_host)) break;
        int state = 0;
        unsigned long long id = 0;
        const cuda::GraphNode* last = nullptr;
        size_t count = 0;
        cuda::check(cuda::driver().capture_info(stream, &state, &id, nullptr, &last, &count), "recording a graph");
        TD_CHECK(count == 1, "a launch in a graph");
        host_nodes->push_back({last[0], &in, std::vector<uint64_t>(words, words + n)});
      }
      break;
    }
    case Instruction::Kind::Library: {
      const LibraryOperands operands(in, ints_, [&](int32_t value) {
        TD_CHECK(!plan_.values[value].on_host, in.label, ": an operand lies on the host");
        return view(value);
      });
      cuda::note_launch(in.label.c_str());
      cuda::library_follows();  // its work comes behind what was launched
      library::Call call = operands.call();
      call.device = device;
      call.stream = stream;
      call.origin = in.origin.get();
      if (in.waits && !in.origin && interpreter.holds_lock())
        library::line_of_call = format_source(KnownSource().get());
      in.routine(call);
      if (in.waits)
        for (cuda::SideWork& work : cuda::take_side_work()) side_.add(std::move(work));
      break;
    }
    case Instruction::Kind::Region:
      run_region(*in.region, *this, in);
      break;
    case Instruction::Kind::Part:
    case Instruction::Kind::Transfer:
      TD_CHECK(false, "an instruction of a plan over several devices");
      break;
    case Instruction::Kind::Free:
      for (int32_t index : in.values) give_back(index);
      break;
  }
}

}  // namespace tandem
