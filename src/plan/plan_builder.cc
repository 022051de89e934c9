#include "plan/plan_builder.h"

#include "check.h"
#include "device/cuda/device.h"
#include "library/registry.h"

namespace tandem {

namespace {

void is_one_of(const char* what, int index, int count) {
  if (index < 0 || index >= count) fail(ErrorKind::Value, "a plan has ", what, ' ', index, ", of ", count);
}

// `least`: -1 where that stands for none.
void refers_to(const char* what, const std::vector<int32_t>& indices, size_t count, int32_t least) {
  for (int32_t index : indices)
    if (index < least || index >= static_cast<int64_t>(count))
      fail(ErrorKind::Value, "a plan refers to ", what, ' ', index, ", of ", count);
}

std::string device_name(int device) {
  return device ? "cuda:" + std::to_string(device - 1) : std::string("cpu");
}

}  // namespace

void PlanBuilder::slots(const std::vector<int32_t>& indices, int32_t least) {
  refers_to("slot", indices, plan->initial.size(), least);
}

void PlanBuilder::values(const std::vector<int32_t>& indices, int32_t least) {
  refers_to("value", indices, plan->values.size(), least);
}

Instruction& PlanBuilder::last() {
  if (plan->instructions.empty()) fail(ErrorKind::Value, "a plan tells more of an instruction that it does not have");
  return plan->instructions.back();
}

void PlanBuilder::origin(std::string op, std::string file, std::string function, int line, int call) {
  here = std::make_shared<const Origin>(Origin{std::move(op), std::move(file), std::move(function), line, call});
}

void PlanBuilder::no_origin() {
  here.reset();
}

int32_t PlanBuilder::slot(int64_t value) {
  plan->initial.push_back(value);
  return static_cast<int32_t>(plan->initial.size()) - 1;
}

int32_t PlanBuilder::bind(int kind, int32_t input, int32_t axis) {
  is_one_of("a kind of size", kind, 3);
  int32_t s = slot(0);
  plan->bindings.push_back({static_cast<Binding::From>(kind), input, axis, s});
  return s;
}

int32_t PlanBuilder::int_op(int code, int32_t a, int32_t b) {
  is_one_of("an operation on integers", code, 7);
  slots({a, b});
  int32_t s = slot(0);
  plan->int_ops.push_back({static_cast<IntCode>(code), a, b, s});
  return s;
}

void PlanBuilder::guard(int relation, int32_t s) {
  is_one_of("a relation", relation, 4);
  slots({s});
  plan->guards.push_back({static_cast<Relation>(relation), s});
}

int32_t PlanBuilder::value(int kind, int dtype, int32_t source, int32_t offset, std::vector<int32_t> shape,
                           std::vector<int32_t> strides) {
  if (shape.size() > kMaxDims)
    fail(ErrorKind::Shape, "a tensor has ", shape.size(), " axes; at most ", kMaxDims, " are supported");
  is_one_of("a kind of value", kind, 3);
  is_one_of("a dtype", dtype, kNumDTypes);
  if (static_cast<ValueKind>(kind) == ValueKind::View) {
    values({source}, 0);
    slots({offset});
  }
  slots(shape);
  slots(strides);
  plan->values.push_back(
      {static_cast<ValueKind>(kind), static_cast<DType>(dtype), source, offset, std::move(shape), std::move(strides)});
  return static_cast<int32_t>(plan->values.size()) - 1;
}

void PlanBuilder::kernel(std::vector<int32_t> values, std::vector<int32_t> ints, int32_t extent, double cost,
                         std::string label) {
  this->values(values);
  slots(ints);
  slots({extent}, -1);
  Instruction in{Instruction::Kind::Kernel};
  in.values = std::move(values);
  in.ints = std::move(ints);
  in.extent = extent;
  in.cost = cost;
  in.label = std::move(label);
  in.origin = here;
  plan->instructions.push_back(std::move(in));
}

void PlanBuilder::library(const std::string& routine, std::vector<int32_t> inputs, std::vector<int32_t> outputs,
                          std::vector<int32_t> ints, std::vector<double> floats, std::string label) {
  values(inputs);
  values(outputs);
  slots(ints);
  Instruction in{Instruction::Kind::Library};
  in.routine = library::find(routine);
  in.prepares = library::prepares(routine);
  plan->num_prepared += in.prepares;
  in.waits = library::waits(routine);
  plan->waits |= in.waits;
  in.checks = routine == "check_index";
  plan->num_checks += in.checks;
  in.num_inputs = static_cast<int32_t>(inputs.size());
  in.values = std::move(inputs);
  in.values.insert(in.values.end(), outputs.begin(), outputs.end());
  in.ints = std::move(ints);
  in.floats = std::move(floats);
  in.label = std::move(label);
  in.origin = here;
  plan->instructions.push_back(std::move(in));
}

void PlanBuilder::epilogue(std::vector<int32_t> operands, std::vector<int32_t> ints, int32_t result, int32_t value,
                           bool keeps, std::vector<int32_t> alike, double cost) {
  values(operands);
  values({value});
  slots(ints);
  Instruction& in = last();
  in.epilogue = std::make_shared<EpilogueCode>();
  in.epilogue->first = static_cast<int32_t>(in.values.size());
  in.epilogue->result = result;
  in.epilogue->value = value;
  in.epilogue->keeps = keeps;
  in.epilogue->ints = std::move(ints);
  in.epilogue->alike = std::move(alike);
  in.epilogue->cost = cost;
  in.values.insert(in.values.end(), operands.begin(), operands.end());
}

void PlanBuilder::update(std::vector<int32_t> operands, std::vector<int32_t> ints, int32_t extent, int32_t block,
                         int32_t piece, int32_t result, std::vector<int32_t> dense, bool keeps, int64_t identity,
                         double cost) {
  values(operands);
  slots(ints);
  slots({extent});
  Instruction& in = last();
  const auto count = static_cast<int32_t>(operands.size());
  is_one_of("a result", piece, in.own_values() - in.num_inputs);
  is_one_of("an operand", result, count + 1);
  for (const int32_t operand : dense) is_one_of("an operand", operand, count + 1);
  if (block < 1) fail(ErrorKind::Value, "a block of ", block, " elements");
  in.updates.push_back({nullptr, static_cast<int32_t>(in.values.size()), count, piece, result, extent, block,
                        std::move(ints), std::move(dense), keeps, identity, cost});
  in.values.insert(in.values.end(), operands.begin(), operands.end());
}

void PlanBuilder::factors(int32_t a, int32_t b, int32_t piece) {
  values({a, b});
  Instruction& in = last();
  is_one_of("an operand", piece, std::min(in.num_inputs, in.own_values() - in.num_inputs));
  if (!in.updates.empty()) fail(ErrorKind::Value, "factors come before updates");
  in.factors.push_back({static_cast<int32_t>(in.values.size()), piece});
  in.values.insert(in.values.end(), {a, b});
}

void PlanBuilder::begin_writes() {
  plan->first_write = static_cast<int32_t>(plan->instructions.size());
}

void PlanBuilder::part(PlanBuilder& builder, std::vector<int32_t> ints) {
  slots(ints, -1);
  next_region->plans.push_back(builder.plan);
  next_region->ints.push_back(std::move(ints));
}

void PlanBuilder::region(int kind, std::vector<int32_t> inputs, std::vector<int32_t> outputs, int32_t carried,
                         int32_t scanned, int32_t extent, bool reverse) {
  is_one_of("a kind of region", kind, 5);
  values(inputs);
  values(outputs);
  slots({extent}, -1);
  auto region = std::exchange(next_region, std::make_shared<Region>());
  region->kind = static_cast<Region::Kind>(kind);
  region->carried = carried;
  region->scanned = scanned;
  region->extent = extent;
  region->reverse = reverse;
  Instruction in{Instruction::Kind::Region};
  in.num_inputs = static_cast<int32_t>(inputs.size());
  in.values = std::move(inputs);
  in.values.insert(in.values.end(), outputs.begin(), outputs.end());
  in.region = std::move(region);
  constexpr const char* kNames[] = {"cond", "scan", "while_loop", "block", "while_loop"};
  in.label = kNames[kind];
  in.origin = here;
  plan->instructions.push_back(std::move(in));
}

void PlanBuilder::block_kernels(int32_t first) {
  Instruction& in = last();
  auto region = std::exchange(next_region, std::make_shared<Region>());
  is_one_of("an input", first, in.num_inputs + 1);
  for (size_t p = 0; p < region->plans.size(); ++p) {
    const Plan& plan = *region->plans[p];
    if (plan.instructions.size() != 1 || plan.instructions[0].kind != Instruction::Kind::Kernel)
      fail(ErrorKind::Value, "a plan of a kernel for blocks has one kernel");
    check_part(plan, static_cast<size_t>(2 + in.num_inputs - first), region->ints[p].size());
  }
  region->carried = first;
  in.region = std::move(region);
}

void PlanBuilder::run_part(std::vector<int32_t> inputs, std::vector<int32_t> outputs) {
  values(inputs);
  values(outputs);
  auto region = std::exchange(next_region, std::make_shared<Region>());
  if (region->plans.size() != 1 || region->plans[0]->outputs.size() != outputs.size())
    fail(ErrorKind::Value, "a plan runs a part that it does not have");
  check_part(*region->plans[0], inputs.size(), region->ints[0].size());
  Instruction in{Instruction::Kind::Part};
  in.num_inputs = static_cast<int32_t>(inputs.size());
  in.values = std::move(inputs);
  in.values.insert(in.values.end(), outputs.begin(), outputs.end());
  in.region = std::move(region);
  in.origin = here;
  plan->instructions.push_back(std::move(in));
}

void PlanBuilder::check_part(const Plan& part, size_t tensors, size_t ints) {
  for (const PlanValue& v : part.values)
    if (v.kind == ValueKind::Input) is_one_of("an input", v.source, static_cast<int>(tensors));
  for (const Binding& b : part.bindings) {
    is_one_of("an input", b.input, static_cast<int>(tensors + ints));
    if (b.from != Binding::From::Int) fail(ErrorKind::Value, "a part of a plan asks for sizes of its operands");
  }
  if (part.num_inputs > tensors) fail(ErrorKind::Value, "a part of a plan has ", part.num_inputs, " inputs");
}

void PlanBuilder::transfer(int32_t from, int32_t to) {
  values({from, to}, 0);
  Instruction in{Instruction::Kind::Transfer};
  in.num_inputs = 1;
  in.values = {from, to};
  in.label = "copy " + device_name(plan->device_of(from)) + " to " + device_name(plan->device_of(to));
  in.origin = here;
  plan->instructions.push_back(std::move(in));
}

void PlanBuilder::place(int32_t value, int device, bool pinned) {
  values({value}, 0);
  is_one_of("a device", device, cuda::kMaxDevices + 1);
  plan->values[value].device = static_cast<int8_t>(device);
  plan->values[value].pinned = pinned;
}

void PlanBuilder::free(std::vector<int32_t> values) {
  this->values(values);
  Instruction in{Instruction::Kind::Free};
  in.values = std::move(values);
  plan->instructions.push_back(std::move(in));
}

void PlanBuilder::output(int32_t value, int32_t same_as_input, int32_t view_of_input, bool differentiable) {
  values({value});
  plan->outputs.push_back({value, same_as_input, view_of_input, differentiable});
}

void PlanBuilder::parts(std::vector<int32_t> extents) {
  slots(extents);
  last().parts = std::move(extents);
}

void PlanBuilder::writes(std::vector<int32_t> values) {
  this->values(values);
  last().writes = std::move(values);
}

void PlanBuilder::on_host(int32_t value) {
  plan->values.at(value).on_host = true;
}

void PlanBuilder::set_program(size_t inputs, std::vector<int32_t> written, std::vector<int32_t> host) {
  plan->is_program = true;
  plan->num_inputs = inputs;
  plan->written = std::move(written);
  plan->host_inputs.assign(inputs, false);
  for (int32_t i : host) plan->host_inputs.at(i) = true;
}

bool PlanBuilder::accepts(const std::vector<InputView>& inputs) const {
  const int count = static_cast<int>(inputs.size());
  for (const Binding& b : plan->bindings) {
    is_one_of("an input", b.input, count);
    if (b.from == Binding::From::Int) continue;
    const View* view = inputs[b.input].view;
    is_one_of("an axis", b.axis, view ? view->ndim : 0);
  }
  for (const PlanValue& v : plan->values)
    if (v.kind == ValueKind::Input) is_one_of("an input", v.source, count);
  return PlanRun(*plan, inputs.data()).guards_hold();
}

}  // namespace tandem
