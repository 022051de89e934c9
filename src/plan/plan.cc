#include "plan/plan.h"

#include <algorithm>
#include <cstring>

#include "check.h"
#include "device/parallel.h"
#include "known_source.h"
#include "library/deterministic.h"
#include "library/epilogue.h"
#include "library/factors.h"
#include "library/update.h"
#include "plan/block_kernels.h"
#include "plan/library_call.h"
#include "plan/region.h"
#include "profile/profile.h"
#include "tensor/pinned.h"

namespace tandem {

Plan::~Plan() {
  for (Object* object : {backward, backward_twice, backward_lazily, keep, unwritten, kernels})
    interpreter.release(object);
  for (const Joined& j : joined) {
    interpreter.release(j.other);
    interpreter.release(j.both);
  }
}

PlanRun::PlanRun(const Plan& plan, const InputView* inputs)
    : plan_(plan), inputs_(inputs), num_values_(plan.values.size()) {
  const size_t num_ints = plan.initial.size(), num_values = num_values_;
  if (num_ints > kInlineSlots) {
    heap_ints_.reset(new int64_t[num_ints]);
    ints_ = heap_ints_.get();
  } else {
    ints_ = inline_ints_;
  }
  if (num_values > kInlineValues) {
    heap_data_.reset(new char*[num_values]);
    heap_storage_.reset(new Storage*[num_values]);
    data_ = heap_data_.get();
    storage_ = heap_storage_.get();
  } else {
    data_ = inline_data_;
    storage_ = inline_storage_;
  }
  if (num_ints) std::memcpy(ints_, plan.initial.data(), num_ints * sizeof(int64_t));
  std::memset(data_, 0, num_values * sizeof(char*));
  std::memset(storage_, 0, num_values * sizeof(Storage*));
}

PlanRun::~PlanRun() {
  for (size_t i = 0; i < num_values_; ++i)
    if (storage_[i]) storage_[i]->release();
  if (arena_.data) deallocate_arena(arena_);
}

static inline int64_t floor_divide(int64_t a, int64_t b) {
  int64_t q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

void PlanRun::run_ints() {
  for (const IntOp& op : plan_.int_ops) {
    int64_t a = ints_[op.a], b = ints_[op.b], r = 0;
    switch (op.code) {
      case IntCode::Add:
        overflow_ |= __builtin_add_overflow(a, b, &r);
        break;
      case IntCode::Sub:
        overflow_ |= __builtin_sub_overflow(a, b, &r);
        break;
      case IntCode::Mul:
        overflow_ |= __builtin_mul_overflow(a, b, &r);
        break;
      // A zero divisor means that a guard (b != 0) is about to fail.
      case IntCode::FloorDiv:
        r = b == 0 || (b == -1 && a == INT64_MIN) ? 0 : floor_divide(a, b);
        break;
      case IntCode::Mod:
        r = b == 0 || b == -1 ? 0 : a - floor_divide(a, b) * b;
        break;
      case IntCode::Min:
        r = a < b ? a : b;
        break;
      case IntCode::Max:
        r = a > b ? a : b;
        break;
    }
    ints_[op.out] = r;
  }
}

bool PlanRun::guards_hold() {
  for (const Binding& bind : plan_.bindings) {
    const InputView& input = inputs_[bind.input];
    switch (bind.from) {
      case Binding::From::Size:
        ints_[bind.slot] = input.view->shape[bind.axis];
        break;
      case Binding::From::Stride:
        ints_[bind.slot] = input.view->strides[bind.axis];
        break;
      case Binding::From::Int:
        ints_[bind.slot] = input.integer;
        break;
    }
  }
  run_ints();
  if (overflow_) [[unlikely]]
    return false;
  for (const Guard& guard : plan_.guards) {
    int64_t v = ints_[guard.slot];
    bool ok = false;
    switch (guard.relation) {
      case Relation::Equal:
        ok = v == 0;
        break;
      case Relation::NotEqual:
        ok = v != 0;
        break;
      case Relation::Less:
        ok = v < 0;
        break;
      case Relation::GreaterEqual:
        ok = v >= 0;
        break;
    }
    if (!ok) return false;
  }
  return true;
}

char* PlanRun::address(int32_t index) {
  char*& p = data_[index];
  if (p) return p;
  const PlanValue& value = plan_.values[index];
  switch (value.kind) {
    case ValueKind::Input: {
      const InputView& input = inputs_[value.source];
      p = input.view ? input.view->data : input.cell;
      break;
    }
    case ValueKind::View:
      p = address(value.source) + ints_[value.offset] * static_cast<int64_t>(item_size(value.dtype));
      break;
    case ValueKind::Fresh:
      storage_[index] = value.pinned ? allocate_pinned(static_cast<size_t>(bytes_of(index)))
                                     : Storage::allocate(static_cast<size_t>(bytes_of(index)), plan_.device_of(index));
      p = storage_[index]->data();
      break;
  }
  return p;
}

int64_t PlanRun::bytes_of(int32_t index) const {
  const PlanValue& value = plan_.values[index];
  auto bytes = static_cast<int64_t>(item_size(value.dtype));
  for (int32_t s : value.shape)
    if (ints_[s] == 0) return 0;
  // Sizes come from the caller: a product that leaves int64 must fail as out of memory, not wrap to a small block.
  for (int32_t s : value.shape)
    if (ints_[s] < 0 || __builtin_mul_overflow(bytes, ints_[s], &bytes) || bytes > (int64_t{1} << 48))
      fail(ErrorKind::Memory, "out of memory: a result with more than 2^48 bytes was asked for");
  return bytes;
}

View PlanRun::view(int32_t index) const {
  View v = geometry(index);
  v.data = const_cast<PlanRun*>(this)->address(index);
  return v;
}

View PlanRun::geometry(int32_t index) const {
  const PlanValue& value = plan_.values[index];
  View v;
  v.data = nullptr;
  v.dtype = value.dtype;
  v.ndim = static_cast<int>(value.shape.size());
  for (int i = 0; i < v.ndim; ++i) {
    v.shape[i] = ints_[value.shape[i]];
    v.strides[i] = ints_[value.strides[i]];
  }
  return v;
}

std::vector<View> PlanRun::geometries(const Instruction& in) const {
  std::vector<View> views;
  const size_t count = in.epilogue ? static_cast<size_t>(in.num_inputs) : in.values.size();
  for (size_t i = 0; i < count; ++i) views.push_back(geometry(in.values[i]));
  if (in.epilogue) views.push_back(geometry(in.epilogue->value));
  return views;
}

Storage* PlanRun::share_storage(int32_t index) {
  address(index);
  TD_CHECK(storage_[index], "only fresh memory can be handed out");
  storage_[index]->retain();
  return storage_[index];
}

void PlanRun::forget_storage(int32_t index) {
  if (Storage* s = std::exchange(storage_[index], nullptr)) s->release();
}

LoopState::LoopState(const Plan& plan, size_t first, size_t last)
    : same(plan.instructions.size()), kept(plan.instructions.size()) {
  constexpr int32_t kMost = 32;  // bits
  for (size_t i = 0; i < same.size(); ++i) {
    const Instruction& in = plan.instructions[i];
    if (in.kind != Instruction::Kind::Library || plan.device) continue;
    for (int32_t k = 0; k < std::min(in.num_inputs, kMost); ++k) {
      const PlanValue* value = &plan.values[in.values[k]];
      while (value->kind == ValueKind::View) value = &plan.values[value->source];
      const auto position = static_cast<size_t>(value->source);
      if (value->kind == ValueKind::Input && position >= first && position < last) same[i] |= 1u << k;
    }
  }
}

void PlanRun::run_again() {
  for (size_t i = 0; i < plan_.values.size(); ++i)
    if (plan_.values[i].kind != ValueKind::Fresh) data_[i] = nullptr;
  if (plan_.over_devices) {
    for (size_t i = 0; i < plan_.values.size(); ++i) give_back(static_cast<int32_t>(i));
    run_parts();
  } else if (plan_.device) {
    run_on_device();
  } else {
    run_instructions();
  }
}

int32_t Instruction::own_values() const {
  if (!factors.empty()) return factors[0].first;
  return updates.empty() ? static_cast<int32_t>(values.size()) : updates[0].first;
}

profile::Kind Instruction::profiled() const {
  switch (kind) {
    case Kind::Kernel:
      return profile::Kind::Kernel;
    case Kind::Library:
      return profile::Kind::Library;
    case Kind::Region:
      return profile::Kind::Region;
    case Kind::Transfer:
      return profile::Kind::Copy;
    case Kind::Part:
    case Kind::Free:
      break;
  }
  return profile::Kind::None;
}

double PlanRun::estimated_cost() const {
  double total = 0;
  for (const Instruction& in : plan_.instructions) {
    if (in.kind == Instruction::Kind::Kernel) {
      total += in.cost * static_cast<double>(ints_[in.extent]);
    } else if (in.kind == Instruction::Kind::Region) {
      total += 1e6;  // who knows; a loop looks for Ctrl-C, for which the GIL must be free
    } else if (in.kind == Instruction::Kind::Library) {
      for (int32_t index : in.values) {
        double n = 1;
        for (int32_t s : plan_.values[index].shape) n *= static_cast<double>(ints_[s]);
        total += n;
      }
    }
  }
  return total;
}

namespace {
struct KernelJob {
  KernelFunction kernel;
  void** pointers;
  const int64_t* ints;
};
}  // namespace

void PlanRun::run_instructions() {
  const Instruction* current = nullptr;
  try {
    run_instructions(current);
  } catch (Error& error) {
    if (current && !error.origin) error.origin = current->origin;
    failed_ = current;
    if (plan_.waits && library::settle) library::settle();
    throw;
  } catch (...) {
    if (plan_.waits && library::settle) library::settle();
    throw;
  }
}

bool PlanRun::wrote_inputs() const {
  if (plan_.first_write < 0) return false;
  if (!failed_) return true;
  const int64_t at = failed_ - plan_.instructions.data();
  if (at == plan_.first_write && failed_->kind == Instruction::Kind::Part) return part_wrote_;
  return at >= plan_.first_write;
}

void PlanRun::check_input(int32_t position) {
  for (const Instruction& in : plan_.instructions) {
    if (!in.checks) continue;
    int32_t root = in.values[0];
    while (plan_.values[root].kind == ValueKind::View) root = plan_.values[root].source;
    if (plan_.values[root].kind != ValueKind::Input || plan_.values[root].source != position) continue;
    const View input = view(in.values[0]);
    int64_t ints[8];
    TD_CHECK(in.ints.size() <= 8);
    for (size_t i = 0; i < in.ints.size(); ++i) ints[i] = ints_[in.ints[i]];
    in.routine({&input, 1, nullptr, 0, ints, static_cast<int>(in.ints.size()), nullptr, 0});
  }
}

void PlanRun::run_instructions(const Instruction*& current) {
  for (const Instruction& in : plan_.instructions) {
    current = &in;
    const profile::Scope timed(in.profiled(), in.label, in.origin.get());
    switch (in.kind) {
      case Instruction::Kind::Kernel: {
        void* pointers[64];
        int64_t ints[160];
        size_t num_values = in.values.size(), num_ints = in.ints.size();
        std::unique_ptr<void*[]> many_pointers;
        std::unique_ptr<int64_t[]> many_ints;
        void** p = pointers;
        int64_t* k = ints;
        if (num_values > 64) {
          many_pointers.reset(new void*[num_values]);
          p = many_pointers.get();
        }
        if (num_ints > 160) {
          many_ints.reset(new int64_t[num_ints]);
          k = many_ints.get();
        }
        for (size_t i = 0; i < num_values; ++i) p[i] = address(in.values[i]);
        for (size_t i = 0; i < num_ints; ++i) k[i] = ints_[in.ints[i]];
        int64_t extent = ints_[in.extent];
        if (extent <= 0) break;
        if (extent == 1 || in.cost * static_cast<double>(extent) < 20000) {
          in.kernel(p, k, 0, extent);
        } else {
          KernelJob job{in.kernel, p, k};
          parallel_range(
              extent, in.cost,
              [](int64_t begin, int64_t end, void* data) {
                auto* j = static_cast<KernelJob*>(data);
                j->kernel(j->pointers, j->ints, begin, end);
              },
              &job);
        }
        break;
      }
      case Instruction::Kind::Library: {
        if (in.epilogue) {
          run_with_epilogue(in);
          break;
        }
        if (!in.updates.empty() || !in.factors.empty()) {
          run_joined(in);
          break;
        }
        const LibraryOperands operands(in, ints_, [this](int32_t value) { return view(value); });
        library::Call call = operands.call();
        keep_for(in, call);
        call.origin = in.origin.get();
        std::vector<library::BlockKernel> blocks;
        if (in.region) {
          blocks = block_kernels(*in.region, *this, in);
          call.blocks = blocks.data(), call.num_blocks = static_cast<int>(blocks.size());
        }
        run_routine(in, call);
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
        for (int32_t index : in.values)
          if (storage_[index]) {
            std::exchange(storage_[index], nullptr)->release();
            data_[index] = nullptr;
          }
        break;
    }
  }
}

void PlanRun::run_with_epilogue(const Instruction& in) {
  const EpilogueCode& code = *in.epilogue;
  std::vector<View> views;
  for (int32_t i = 0; i < in.num_inputs; ++i) views.push_back(view(in.values[i]));
  views.push_back(code.keeps ? view(code.value) : geometry(code.value));
  library::Epilogue epilogue;
  const size_t operands = in.values.size() - static_cast<size_t>(code.first);
  TD_CHECK(operands + 1 <= library::Epilogue::kMostPointers && in.ints.empty() && in.floats.empty() &&
               code.ints.size() + library::Epilogue::kOwnInts <= library::Epilogue::kMostInts,
           "an epilogue with too many operands");
  epilogue.kernel = code.kernel;
  epilogue.result = code.result;
  epilogue.keeps = code.keeps;
  epilogue.cost = code.cost;
  epilogue.alike = code.alike.data();
  epilogue.num_alike = static_cast<int>(code.alike.size());
  for (size_t i = 0; i <= operands; ++i) {
    void*& pointer = epilogue.pointers[epilogue.num_pointers++];
    if (static_cast<int32_t>(i) == code.result)
      pointer = views.back().data;
    else
      pointer = address(in.values[static_cast<size_t>(code.first) + i - (static_cast<int32_t>(i) > code.result)]);
  }
  epilogue.num_ints = library::Epilogue::kOwnInts;
  for (int32_t slot : code.ints) epilogue.ints[epilogue.num_ints++] = ints_[slot];
  library::Call call{views.data(), in.num_inputs, views.data() + in.num_inputs, 1, nullptr, 0, nullptr, 0};
  call.epilogue = &epilogue;
  keep_for(in, call);
  run_routine(in, call);
}

void PlanRun::run_joined(const Instruction& in) {
  const int32_t own = in.own_values();
  std::vector<View> views;
  for (int32_t i = 0; i < own; ++i) views.push_back(view(in.values[i]));
  std::vector<int64_t> ints;
  for (int32_t slot : in.ints) ints.push_back(ints_[slot]);
  std::vector<library::Factors> factors;
  for (const auto& [first, piece] : in.factors)
    factors.push_back({piece, view(in.values[first]), view(in.values[first + 1]), views[piece]});
  std::vector<library::Update> updates;
  for (const UpdateCode& code : in.updates) {
    library::Update& made = updates.emplace_back();
    made.kernel = code.kernel;
    made.blocks = ints_[code.extent], made.block = code.block;
    made.piece = code.piece, made.result = code.result;
    made.dense = &code.dense;
    made.keeps = code.keeps;
    made.identity = static_cast<uint64_t>(code.identity);
    made.cost = code.cost;
    for (int32_t slot : code.ints) made.ints.push_back(ints_[slot]);
    for (int32_t i = 0, at = code.first; i <= code.count; ++i) {
      if (i == code.result) {
        made.pointers.push_back(views[in.num_inputs + code.piece].data);
        continue;
      }
      made.pointers.push_back(address(in.values[at]));
      if (std::find(code.dense.begin(), code.dense.end(), i) == code.dense.end()) {
        made.numbers.push_back(i);
        made.number_bytes.push_back(static_cast<int32_t>(item_size(plan_.values[in.values[at]].dtype)));
      }
      ++at;
    }
  }
  library::Call call{views.data(),
                     in.num_inputs,
                     views.data() + in.num_inputs,
                     own - in.num_inputs,
                     ints.data(),
                     static_cast<int>(ints.size()),
                     in.floats.data(),
                     static_cast<int>(in.floats.size())};
  call.origin = in.origin.get();
  call.updates = updates.data(), call.num_updates = static_cast<int>(updates.size());
  call.factors = factors.data(), call.num_factors = static_cast<int>(factors.size());
  run_routine(in, call);
}

void PlanRun::keep_for(const Instruction& in, library::Call& call) {
  if (!loop_) return;  // neither in a loop nor with constant weights
  const auto index = static_cast<size_t>(&in - plan_.instructions.data());
  call.same = loop_->same[index];
  call.kept = &loop_->kept[index];
}

void PlanRun::execute_without_gil() {
  const profile::Scope operation(profile::Kind::Operator, plan_.name);
  if (plan_.over_devices) return run_parts();
  run_instructions();
}

// See Note [Preparing] in library/registry.h.
bool PlanRun::meets_new_sizes() {
  constexpr int32_t kWorthPreparing = 6;
  constexpr size_t kMostSizes = 64;
  if (plan_.num_prepared < kWorthPreparing) return false;
  uint64_t hash = static_cast<uint64_t>(library::conditions());
  for (const Binding& bind : plan_.bindings) {
    hash = (hash ^ static_cast<uint64_t>(ints_[bind.slot])) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  }
  std::vector<uint64_t>& seen = plan_.ready_for;
  if (std::find(seen.begin(), seen.end(), hash) != seen.end()) return false;
  if (seen.size() >= kMostSizes) seen.erase(seen.begin());
  seen.push_back(hash);
  return true;
}

void PlanRun::prepare_routines() {
  std::vector<std::vector<View>> views;
  std::vector<std::vector<int64_t>> ints;
  std::vector<library::Call> calls;
  std::vector<library::Function> routines;
  std::vector<std::unique_ptr<library::Epilogue>> epilogues;
  for (const Instruction& in : plan_.instructions) {
    if (!in.prepares) continue;
    std::vector<View>& v = views.emplace_back(geometries(in));
    std::vector<int64_t>& k = ints.emplace_back();
    for (int32_t slot : in.ints) k.push_back(ints_[slot]);
    const int num_values = static_cast<int>(v.size()), num_ints = static_cast<int>(k.size());
    calls.push_back({v.data(), in.num_inputs, v.data() + in.num_inputs, num_values - in.num_inputs, k.data(), num_ints,
                     in.floats.data(), static_cast<int>(in.floats.size())});
    if (in.epilogue) {
      auto& epilogue = epilogues.emplace_back(std::make_unique<library::Epilogue>());
      epilogue->keeps = in.epilogue->keeps;
      calls.back().epilogue = epilogue.get();
    }
    routines.push_back(in.routine);
  }
  library::prepare(calls, routines);
}

void PlanRun::execute() {
  if (plan_.instructions.empty()) return;
  const profile::Scope operation(profile::Kind::Operator, plan_.name);
  if (plan_.over_devices) [[unlikely]]
    return run_parts();
  if (plan_.device) [[unlikely]] {
    if (!plan_.is_program) return run_on_device();
    return run_replayed(plan_, *this);
  }
  // Below this, handing the GIL over costs more than it gives.
  constexpr double kReleaseNanoseconds = 30000;
  constexpr size_t kMostLayouts = 32;
  const bool prepare = meets_new_sizes();
  std::shared_ptr<const MemoryLayout> layout = plan_.lays_out ? find_layout() : nullptr;
  const bool lay_out = plan_.lays_out && !layout;
  if (plan_.waits) library::line_of_call = format_source(KnownSource().get());
  if (!prepare && !lay_out && !plan_.waits && estimated_cost() < kReleaseNanoseconds) {
    if (layout) take_arena(std::move(layout));
    run_instructions();
    return;
  }
  {
    const Unlocked unlocked;
    if (prepare) prepare_routines();
    if (lay_out) layout = make_layout();
    if (layout) take_arena(layout);
    run_instructions();
  }
  if (!lay_out) return;
  if (plan_.layouts.size() >= kMostLayouts) plan_.layouts.erase(plan_.layouts.begin());
  plan_.layouts.push_back(std::move(layout));
}

}  // namespace tandem
