#include "plan/plan_file.h"

#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <variant>

#include "check.h"
#include "loader/object_loader.h"
#include "plan/plan_builder.h"

namespace tandem {

namespace {

constexpr std::string_view kFormat = "tandem plan 1\n";

struct Kernel {
  KernelFunction function;
};
using Part = std::shared_ptr<PlanBuilder>;
using Value = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>, Kernel, Part>;

[[noreturn]] void damaged(const char* how) {
  fail(ErrorKind::Value, "a file of a plan is damaged: ", how);
}

// The bytes of a file, one item after the other.
class Bytes {
 public:
  explicit Bytes(std::string_view text) : left_(text) {}
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view take(size_t count) {
    if (count > left_.size()) damaged("it ends too early");
    const std::string_view found = left_.substr(0, count);
    left_.remove_prefix(count);
    return found;
  }
  template <typename T>
  std::vector<T> list() {
    const auto count = number<uint32_t>();
    const std::string_view bytes = take(size_t{count} * sizeof(T));
    std::vector<T> values(count);
    if (count) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  bool done() const { return left_.empty(); }

 private:
  std::string_view left_;
};

// The arguments of one call, taken in order.
class Arguments {
 public:
  explicit Arguments(std::vector<Value> values) : values_(std::move(values)) {}
  template <typename T>
  T next() {
    if (at_ == values_.size()) damaged("a call has too few arguments");
    T* found = std::get_if<T>(&values_[at_++]);
    if (!found) damaged("an argument is of another kind");
    return std::move(*found);
  }
  int32_t number() { return static_cast<int32_t>(next<int64_t>()); }
  std::vector<int32_t> numbers() {
    if (at_ < values_.size() && std::holds_alternative<std::vector<double>>(values_[at_]) &&
        std::get<std::vector<double>>(values_[at_]).empty())
      return ++at_, std::vector<int32_t>();
    const auto wide = next<std::vector<int64_t>>();
    return {wide.begin(), wide.end()};
  }
  std::vector<double> reals() {
    if (at_ < values_.size() && std::holds_alternative<std::vector<int64_t>>(values_[at_])) {
      const auto found = next<std::vector<int64_t>>();
      return {found.begin(), found.end()};
    }
    return next<std::vector<double>>();
  }
  double real() {
    if (at_ < values_.size() && std::holds_alternative<int64_t>(values_[at_])) return static_cast<double>(number());
    return next<double>();
  }
  std::string text() { return next<std::string>(); }

 private:
  std::vector<Value> values_;
  size_t at_ = 0;
};

using Call = void (*)(PlanBuilder& b, Arguments& a);

void add_kernel(PlanBuilder& b, Arguments& a) {
  const auto kernel = a.next<Kernel>();
  auto values = a.numbers(), ints = a.numbers();
  const int32_t extent = a.number();
  const double cost = a.real();
  b.kernel(std::move(values), std::move(ints), extent, cost, a.text());
  b.last().kernel = kernel.function;
}

void add_epilogue(PlanBuilder& b, Arguments& a) {
  const auto kernel = a.next<Kernel>();
  auto operands = a.numbers(), ints = a.numbers();
  const int32_t result = a.number(), value = a.number();
  const bool keeps = a.number() != 0;
  auto alike = a.numbers();
  b.epilogue(std::move(operands), std::move(ints), result, value, keeps, std::move(alike), a.real());
  b.last().epilogue->kernel = kernel.function;
}

void add_update(PlanBuilder& b, Arguments& a) {
  const auto kernel = a.next<Kernel>();
  auto operands = a.numbers(), ints = a.numbers();
  const int32_t extent = a.number(), block = a.number(), piece = a.number(), result = a.number();
  auto dense = a.numbers();
  const bool keeps = a.number() != 0;
  const auto identity = a.next<int64_t>();
  b.update(std::move(operands), std::move(ints), extent, block, piece, result, std::move(dense), keeps, identity,
           a.real());
  b.last().updates.back().kernel = kernel.function;
}

void add_factors(PlanBuilder& b, Arguments& a) {
  const int32_t left = a.number(), right = a.number();
  b.factors(left, right, a.number());
}

void add_library(PlanBuilder& b, Arguments& a) {
  const std::string routine = a.text();
  auto inputs = a.numbers(), outputs = a.numbers(), ints = a.numbers();
  auto floats = a.reals();
  b.library(routine, std::move(inputs), std::move(outputs), std::move(ints), std::move(floats), a.text());
}

void add_region(PlanBuilder& b, Arguments& a) {
  const int kind = a.number();
  auto inputs = a.numbers(), outputs = a.numbers();
  const int32_t carried = a.number(), scanned = a.number(), extent = a.number();
  b.region(kind, std::move(inputs), std::move(outputs), carried, scanned, extent, a.number() != 0);
}

void add_value(PlanBuilder& b, Arguments& a) {
  const int kind = a.number(), dtype = a.number();
  const int32_t source = a.number(), offset = a.number();
  auto shape = a.numbers(), strides = a.numbers();
  b.value(kind, dtype, source, offset, std::move(shape), std::move(strides));
}

void add_part(PlanBuilder& b, Arguments& a) {
  const Part part = a.next<Part>();
  b.part(*part, a.numbers());
}

void add_int_op(PlanBuilder& b, Arguments& a) {
  const int code = a.number(), first = a.number();
  b.int_op(code, first, a.number());
}

void add_binding(PlanBuilder& b, Arguments& a) {
  const int kind = a.number(), input = a.number();
  b.bind(kind, input, a.number());
}

void add_output(PlanBuilder& b, Arguments& a) {
  const int32_t value = a.number(), same = a.number(), view = a.number();
  b.output(value, same, view, a.number() != 0);
}

void add_guard(PlanBuilder& b, Arguments& a) {
  const int relation = a.number();
  b.guard(relation, a.number());
}

const std::unordered_map<std::string_view, Call>& calls() {
  static const auto* table = new std::unordered_map<std::string_view, Call>{
      {"slot", [](PlanBuilder& b, Arguments& a) { b.slot(a.next<int64_t>()); }},
      {"bind", &add_binding},
      {"int_op", &add_int_op},
      {"guard", &add_guard},
      {"value", &add_value},
      {"kernel", &add_kernel},
      {"epilogue", &add_epilogue},
      {"factors", &add_factors},
      {"update", &add_update},
      {"library", &add_library},
      {"part", &add_part},
      {"block_kernels", [](PlanBuilder& b, Arguments& a) { b.block_kernels(a.number()); }},
      {"region", &add_region},
      {"output", &add_output},
      {"free", [](PlanBuilder& b, Arguments& a) { b.free(a.numbers()); }},
      {"on_host", [](PlanBuilder& b, Arguments& a) { b.on_host(a.number()); }},
      {"begin_writes", [](PlanBuilder& b, Arguments&) { b.begin_writes(); }},
      {"no_origin", [](PlanBuilder& b, Arguments&) { b.no_origin(); }},
      {"set_name", [](PlanBuilder& b, Arguments& a) { b.plan->name = a.text(); }},
      {"lay_out", [](PlanBuilder& b, Arguments&) { b.plan->lays_out = true; }},
  };
  return *table;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : bytes_(text) {
    if (bytes_.take(std::min(kFormat.size(), text.size())) != kFormat)
      fail(ErrorKind::Value, "this is no file of a plan, or one of another version");
    const auto count = bytes_.number<uint32_t>();
    for (uint32_t i = 0; i < count; ++i) {
      const auto size = bytes_.number<uint64_t>();
      kernels_.push_back({reinterpret_cast<KernelFunction>(load_object(bytes_.take(size), "kernel"))});
    }
  }
  Bytes& bytes() { return bytes_; }

  Part plan() {
    Part made = std::make_shared<PlanBuilder>();
    const auto count = bytes_.number<uint32_t>();
    for (uint32_t i = 0; i < count; ++i) {
      const std::string_view name = bytes_.take(bytes_.number<uint8_t>());
      const auto found = calls().find(name);
      if (found == calls().end()) damaged("it has a call that plans do not know");
      std::vector<Value> values(bytes_.number<uint8_t>());
      for (Value& value : values) value = argument();
      Arguments arguments(std::move(values));
      found->second(*made, arguments);
    }
    return made;
  }

 private:
  Value argument() {
    switch (bytes_.number<char>()) {
      case 'i':
        return bytes_.number<int64_t>();
      case 'd':
        return bytes_.number<double>();
      case 's':
        return std::string(bytes_.take(bytes_.number<uint32_t>()));
      case 'I':
        return bytes_.list<int64_t>();
      case 'D':
        return bytes_.list<double>();
      case 'K': {
        const auto index = bytes_.number<uint32_t>();
        if (index >= kernels_.size()) damaged("it has a kernel without code");
        return kernels_[index];
      }
      case 'P':
        return plan();
      default:
        damaged("an argument is of a kind that plans do not know");
    }
  }

  Bytes bytes_;
  std::vector<Kernel> kernels_;
};

View dense(DType dtype, const std::vector<int64_t>& shape) {
  View v;
  v.data = nullptr;
  v.dtype = dtype;
  v.ndim = static_cast<int>(shape.size());
  int64_t step = 1;
  for (int i = v.ndim - 1; i >= 0; --i) {
    v.shape[i] = shape[i];
    v.strides[i] = step;
    step *= shape[i];
  }
  return v;
}

}  // namespace

PlanFile::PlanFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorKind::Value, "the file ", path, " cannot be read");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Reader reader(text);
  Bytes& bytes = reader.bytes();
  const auto count = bytes.number<uint32_t>();
  for (uint32_t i = 0; i < count; ++i) {
    const auto dtype = bytes.number<uint8_t>(), ndim = bytes.number<uint8_t>();
    if (dtype >= kNumDTypes || ndim > kMaxDims) damaged("a constant has a type that there is not");
    std::vector<int64_t> shape;
    size_t elements = 1;
    for (int k = 0; k < ndim; ++k) {
      shape.push_back(bytes.number<int64_t>());
      if (shape.back() < 0 || __builtin_mul_overflow(elements, static_cast<size_t>(shape.back()), &elements))
        damaged("a constant has a size that it cannot have");
    }
    Constant& constant = constants_.emplace_back();
    constant.view = dense(static_cast<DType>(dtype), shape);
    size_t size;
    if (__builtin_mul_overflow(elements, item_size(constant.view.dtype), &size)) damaged("a constant is too large");
    const std::string_view elements_of = bytes.take(size);
    constant.storage = Ref<Storage>::adopt(Storage::allocate(size));
    if (size) std::memcpy(constant.storage->data(), elements_of.data(), size);
    constant.view.data = constant.storage->data();
  }
  const auto inputs = bytes.number<uint32_t>();
  for (uint32_t i = 0; i < inputs; ++i) {
    const auto dtype = bytes.number<uint8_t>(), ndim = bytes.number<uint8_t>();
    if (dtype >= kNumDTypes || ndim > kMaxDims) damaged("an input has a type that there is not");
    Input& input = inputs_.emplace_back(Input{static_cast<DType>(dtype), {}});
    for (int k = 0; k < ndim; ++k) input.shape.push_back(bytes.number<int64_t>());
  }
  plan_ = reader.plan()->plan;
  if (!bytes.done()) damaged("something follows its end");
}

void PlanFile::check(const std::vector<View>& inputs) const {
  if (inputs.size() != inputs_.size())
    fail(ErrorKind::Shape, "the plan takes ", inputs_.size(), " tensors, and ", inputs.size(), " were given");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& wanted = inputs_[i];
    const View& given = inputs[i];
    if (given.dtype != wanted.dtype)
      fail(ErrorKind::Type, "input ", i, " is ", name(wanted.dtype), ", and ", name(given.dtype), " was given");
    bool fits = given.ndim == static_cast<int>(wanted.shape.size()) && given.is_contiguous();
    for (int k = 0; fits && k < given.ndim; ++k) fits = wanted.shape[k] < 0 || wanted.shape[k] == given.shape[k];
    if (!fits) fail(ErrorKind::Shape, "the plan is not for tensors of these sizes: input ", i, " does not fit");
  }
}

std::vector<PlanFile::Result> PlanFile::run(const std::vector<View>& inputs) const {
  check(inputs);
  std::vector<InputView> given;
  for (const View& v : inputs) given.push_back({&v});
  for (const Constant& constant : constants_) given.push_back({&constant.view});
  PlanBuilder builder;
  builder.plan = plan_;
  if (!builder.accepts(given)) fail(ErrorKind::Shape, "the plan is not for tensors of these sizes");
  PlanRun run(*plan_, given.data());
  run.guards_hold();
  run.execute();
  std::vector<Result> results;
  for (const Plan::Output& output : plan_->outputs) {
    int32_t root = output.value;
    while (plan_->values[root].kind == ValueKind::View) root = plan_->values[root].source;
    if (plan_->values[root].kind != ValueKind::Fresh) damaged("a result is no memory of its own");
    results.push_back({run.view(output.value), Ref<Storage>::adopt(run.share_storage(root))});
  }
  return results;
}

}  // namespace tandem
