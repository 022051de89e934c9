// Plans as Python builds them (tandem/program/write.py).
#include "plan/plan.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <utility>

#include "bindings/bindings.h"
#include "capture/capture.h"
#include "check.h"
#include "device/cuda/device.h"
#include "operators/op_function.h"
#include "places.h"
#include "plan/region.h"

namespace nb = nanobind;

namespace tandem {

namespace {

void prepare_device_kernels(Plan& plan);

// Calls may come from a file (tandem/program/stored.py): what they refer to must be there.
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

struct PlanBuilder {
  Ref<Plan> plan = Ref<Plan>::adopt(new Plan());
  std::shared_ptr<const Origin> here;  // of the instructions that follow

  void slots(const std::vector<int32_t>& indices, int32_t least = 0) {
    refers_to("slot", indices, plan->initial.size(), least);
  }
  void values(const std::vector<int32_t>& indices, int32_t least = -1) {
    refers_to("value", indices, plan->values.size(), least);
  }
  Instruction& last() {
    if (plan->instructions.empty()) fail(ErrorKind::Value, "a plan tells more of an instruction that it does not have");
    return plan->instructions.back();
  }

  void origin(std::string op, std::string file, std::string function, int line, int call, nb::object place) {
    Origin made{std::move(op), std::move(file), std::move(function), line, call};
    here = place.is_none() ? std::make_shared<const Origin>(std::move(made)) : placed(std::move(made), place.ptr());
  }
  void no_origin() { here.reset(); }

  int32_t slot(int64_t value) {
    plan->initial.push_back(value);
    return static_cast<int32_t>(plan->initial.size()) - 1;
  }
  int32_t bind(int kind, int32_t input, int32_t axis) {
    is_one_of("a kind of size", kind, 3);
    int32_t s = slot(0);
    plan->bindings.push_back({static_cast<Binding::From>(kind), input, axis, s});
    return s;
  }
  int32_t int_op(int code, int32_t a, int32_t b) {
    is_one_of("an operation on integers", code, 7);
    slots({a, b});
    int32_t s = slot(0);
    plan->int_ops.push_back({static_cast<IntCode>(code), a, b, s});
    return s;
  }
  void guard(int relation, int32_t s) {
    is_one_of("a relation", relation, 4);
    slots({s});
    plan->guards.push_back({static_cast<Relation>(relation), s});
  }
  int32_t value(int kind, int dtype, int32_t source, int32_t offset, std::vector<int32_t> shape,
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
    plan->values.push_back({static_cast<ValueKind>(kind), static_cast<DType>(dtype), source, offset, std::move(shape),
                            std::move(strides)});
    return static_cast<int32_t>(plan->values.size()) - 1;
  }
  void kernel(nb::object kernel, std::vector<int32_t> values, std::vector<int32_t> ints, int32_t extent, double cost,
              std::string label) {
    this->values(values);
    slots(ints);
    slots({extent}, -1);
    Instruction in{Instruction::Kind::Kernel};
    if (!plan->kernels) plan->kernels = PyList_New(0);
    PyList_Append(plan->kernels, kernel.ptr());
    in.values = std::move(values);
    in.ints = std::move(ints);
    in.extent = extent;
    in.cost = cost;
    in.label = std::move(label);
    in.origin = here;
    plan->instructions.push_back(std::move(in));
  }
  void library(const std::string& routine, std::vector<int32_t> inputs, std::vector<int32_t> outputs,
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
  // The kernel that follows the routine added last, on blocks of its result. `operands`: without the result, which is
  // put in at `result`; `value`: the result; `keeps`: whether it is among the routine's outputs.
  void epilogue(nb::object kernel, std::vector<int32_t> operands, std::vector<int32_t> ints, int32_t result,
                int32_t value, bool keeps, std::vector<int32_t> alike, double cost) {
    values(operands);
    values({value});
    slots(ints);
    Instruction& in = last();
    if (!plan->kernels) plan->kernels = PyList_New(0);
    PyList_Append(plan->kernels, kernel.ptr());
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
  void begin_writes() { plan->first_write = static_cast<int32_t>(plan->instructions.size()); }
  std::shared_ptr<Region> next_region = std::make_shared<Region>();

  // The plan of a graph of the region that comes next, and which slots here are its integers.
  void part(PlanBuilder& builder, std::vector<int32_t> ints) {
    slots(ints, -1);
    next_region->plans.push_back(builder.plan);
    next_region->ints.push_back(std::move(ints));
    if (builder.plan->kernels && !plan->kernels) plan->kernels = PyList_New(0);
  }
  void region(int kind, std::vector<int32_t> inputs, std::vector<int32_t> outputs, int32_t carried, int32_t scanned,
              int32_t extent, bool reverse) {
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
  // The plan that was given last, for one device, runs as part of this one.
  void run_part(std::vector<int32_t> inputs, std::vector<int32_t> outputs) {
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
  static void check_part(const Plan& part, size_t tensors, size_t ints) {
    for (const PlanValue& v : part.values)
      if (v.kind == ValueKind::Input) is_one_of("an input", v.source, static_cast<int>(tensors));
    for (const Binding& b : part.bindings) {
      is_one_of("an input", b.input, static_cast<int>(tensors + ints));
      if (b.from != Binding::From::Int) fail(ErrorKind::Value, "a part of a plan asks for sizes of its operands");
    }
    if (part.num_inputs > tensors) fail(ErrorKind::Value, "a part of a plan has ", part.num_inputs, " inputs");
  }
  void transfer(int32_t from, int32_t to) {
    values({from, to}, 0);
    Instruction in{Instruction::Kind::Transfer};
    in.num_inputs = 1;
    in.values = {from, to};
    in.label = "copy " + device_name(plan->device_of(from)) + " to " + device_name(plan->device_of(to));
    in.origin = here;
    plan->instructions.push_back(std::move(in));
  }
  void place(int32_t value, int device, bool pinned) {
    values({value}, 0);
    is_one_of("a device", device, cuda::kMaxDevices + 1);
    plan->values[value].device = static_cast<int8_t>(device);
    plan->values[value].pinned = pinned;
  }
  void free(std::vector<int32_t> values) {
    this->values(values);
    Instruction in{Instruction::Kind::Free};
    in.values = std::move(values);
    plan->instructions.push_back(std::move(in));
  }
  void output(int32_t value, int32_t same_as_input, int32_t view_of_input, bool differentiable) {
    values({value});
    plan->outputs.push_back({value, same_as_input, view_of_input, differentiable});
  }
  void backward(std::vector<int32_t> grad_inputs, std::vector<std::tuple<int, int32_t, int32_t>> saved,
                std::vector<int32_t> ints, std::vector<int32_t> numbers, nb::object first, nb::object twice) {
    plan->grad_inputs = std::move(grad_inputs);
    for (auto& [from, index, copy_of] : saved)
      plan->saved.push_back({static_cast<SavedItem::From>(from), index, copy_of});
    plan->saved_ints = std::move(ints);
    plan->saved_numbers = std::move(numbers);
    plan->backward = first.release().ptr();
    plan->backward_twice = twice.release().ptr();
  }
  // Whether the plan serves these arguments, as describe.h tells of them.
  bool accepts(nb::list arguments) {
    std::vector<View> views(arguments.size());
    std::vector<InputView> inputs(arguments.size());
    for (size_t i = 0; i < arguments.size(); ++i) {
      const auto kind = nb::cast<std::string>(arguments[i][0]);
      if (kind == "tensor") {
        auto shape = nb::cast<std::vector<int64_t>>(arguments[i][2]),
             strides = nb::cast<std::vector<int64_t>>(arguments[i][3]);
        views[i].ndim = static_cast<int>(shape.size());
        std::copy(shape.begin(), shape.end(), views[i].shape);
        std::copy(strides.begin(), strides.end(), views[i].strides);
        inputs[i].view = &views[i];
      } else if (kind == "int" || kind == "count") {
        inputs[i].integer = nb::cast<int64_t>(arguments[i][1]);
      }
    }
    for (const Binding& b : plan->bindings) check_binding(b, inputs);
    for (const PlanValue& v : plan->values)
      if (v.kind == ValueKind::Input) is_one_of("an input", v.source, static_cast<int>(inputs.size()));
    return PlanRun(*plan, inputs.data()).guards_hold();
  }
  static void check_binding(const Binding& b, const std::vector<InputView>& inputs) {
    is_one_of("an input", b.input, static_cast<int>(inputs.size()));
    if (b.from == Binding::From::Int) return;
    const View* view = inputs[b.input].view;
    is_one_of("an axis", b.axis, view ? view->ndim : 0);
  }
  // Runs the plan as it stands, for tools that look inside programs: `numbers` as the bytes that kernels read. All
  // outputs must be fresh memory, or views of such.
  nb::list run(nb::list tensors, std::vector<nb::bytes> numbers, std::vector<int64_t> ints) {
    std::vector<InputView> inputs(tensors.size() + numbers.size() + ints.size());
    size_t at = 0;
    for (nb::handle h : tensors) {
      if (!is_tensor(h.ptr())) throw nb::type_error("expected a tandem.Tensor");
      const auto* t = reinterpret_cast<const Tensor*>(h.ptr());
      materialize(t);
      inputs[at++].view = &t->view;
    }
    for (nb::bytes& number : numbers) inputs[at++].cell = const_cast<char*>(number.c_str());
    for (int64_t v : ints) inputs[at++].integer = v;
    nb::list results;
    try {
      PlanRun run(*plan, inputs.data());
      if (!run.guards_hold()) fail(ErrorKind::Internal, "the plan does not accept these inputs");
      prepare_plan(*plan);
      run.execute();
      for (const Plan::Output& output : plan->outputs) {
        int32_t root = output.value;
        while (plan->values[root].kind == ValueKind::View) root = plan->values[root].source;
        const View v = run.view(output.value);
        Tensor* t = new_tensor(run.share_storage(root), v.data, v.dtype, v.ndim, v.shape, v.strides);
        results.append(nb::steal(reinterpret_cast<PyObject*>(t)));
      }
    } catch (const PythonError&) {
      nb::raise_python_error();
    }
    return results;
  }
  // Several launches of the kernel that was added last become one: `extents` of each, all of whose operands it has.
  void parts(std::vector<int32_t> extents) {
    slots(extents);
    last().parts = std::move(extents);
  }
  // What the kernel that was added last writes.
  void writes(std::vector<int32_t> values) {
    this->values(values);
    last().writes = std::move(values);
  }
  void on_host(int32_t value) { plan->values.at(value).on_host = true; }
  // Of a program on a device: how many inputs it has, which of them it writes, and which lie on the host.
  void set_program(size_t inputs, std::vector<int32_t> written, std::vector<int32_t> host) {
    plan->is_program = true;
    plan->num_inputs = inputs;
    plan->written = std::move(written);
    plan->host_inputs.assign(inputs, false);
    for (int32_t i : host) plan->host_inputs.at(i) = true;
  }
  void keep(nb::object o) {
    Py_XDECREF(plan->keep);
    plan->keep = o.release().ptr();
  }
};

// Instructions with kernels of a plan and of the regions in it, and these kernels.
void collect_kernels(Plan& plan, std::vector<Instruction*>& instructions, nb::list& kernels) {
  Py_ssize_t k = 0;
  for (Instruction& in : plan.instructions) {
    if (in.kind == Instruction::Kind::Region)
      for (const Ref<Plan>& part : in.region->plans) {
        if (part->over_devices)
          prepare_plan(*part);
        else
          collect_kernels(*part, instructions, kernels);
      }
    if (in.kind != Instruction::Kind::Kernel) continue;
    instructions.push_back(&in);
    kernels.append(nb::borrow(PyList_GET_ITEM(plan.kernels, k++)));
  }
}

void forget_kernels(Plan& plan) {
  Py_CLEAR(plan.kernels);
  for (Instruction& in : plan.instructions)
    if (in.kind == Instruction::Kind::Region)
      for (const Ref<Plan>& part : in.region->plans)
        if (!part->over_devices) forget_kernels(*part);
}

// All kernels of a plan for a device in one call, so that they can be compiled side by side.
void prepare_device_kernels(Plan& plan) {
  std::vector<Instruction*> instructions;
  nb::list kernel_list;
  collect_kernels(plan, instructions, kernel_list);
  PyObject* kernels = kernel_list.ptr();
  PyObject* loaded = PyObject_CallFunction(callbacks.load_kernels, "Oi", kernels, plan.device - 1);
  if (!loaded) throw PythonError{};
  nb::object owner = nb::steal(loaded);
  try {
    auto list = nb::cast<std::vector<std::tuple<uintptr_t, int, int, int, uint32_t>>>(owner);
    size_t k = 0;
    for (Instruction* instruction : instructions) {
      Instruction& in = *instruction;
      auto [function, x, y, extra, shared] = list.at(k++);
      in.function = reinterpret_cast<void*>(function);
      in.threads[0] = static_cast<uint16_t>(x);
      in.threads[1] = static_cast<uint16_t>(y);
      in.extra = static_cast<uint8_t>(extra);
      in.shared = shared;
    }
  } catch (nb::python_error& error) {
    error.restore();
    throw PythonError{};
  }
  forget_kernels(plan);
}

}  // namespace

Ref<Plan> plan_from_python(PyObject* object) {
  PlanBuilder* builder = nullptr;
  if (!nb::try_cast<PlanBuilder*>(nb::handle(object), builder) || !builder) {
    PyErr_SetString(PyExc_TypeError, "the compile callback must return a PlanBuilder");
    return nullptr;
  }
  return builder->plan;
}

void prepare_plan(Plan& plan) {
  if (!plan.kernels) return;
  nb::object kernels = nb::borrow(plan.kernels);  // compiling runs Python, which may get here again
  size_t k = 0;
  if (plan.device && !plan.over_devices) return prepare_device_kernels(plan);
  try {
    for (Instruction& in : plan.instructions) {
      if (in.region)
        for (const Ref<Plan>& part : in.region->plans) prepare_plan(*part);
      if (in.kind != Instruction::Kind::Kernel && !in.epilogue) continue;
      nb::object kernel = nb::borrow(PyList_GET_ITEM(kernels.ptr(), static_cast<Py_ssize_t>(k++)));
      const auto code = reinterpret_cast<KernelFunction>(nb::cast<uintptr_t>(kernel.attr("address")()));
      (in.epilogue ? in.epilogue->kernel : in.kernel) = code;
    }
  } catch (nb::python_error& error) {
    error.restore();
    throw PythonError{};
  }
  Py_CLEAR(plan.kernels);
}

void register_plan(nb::module_& m) {
  nb::class_<PlanBuilder>(m, "PlanBuilder")
      .def(nb::init<>())
      .def("slot", &PlanBuilder::slot)
      .def("bind", &PlanBuilder::bind)
      .def("int_op", &PlanBuilder::int_op)
      .def("guard", &PlanBuilder::guard)
      .def("value", &PlanBuilder::value)
      .def("origin", &PlanBuilder::origin, nb::arg("op"), nb::arg("file"), nb::arg("function"), nb::arg("line"),
           nb::arg("call") = -1, nb::arg("place") = nb::none())
      .def("begin_writes", &PlanBuilder::begin_writes)
      .def("no_origin", &PlanBuilder::no_origin)
      .def("kernel", &PlanBuilder::kernel)
      .def("library", &PlanBuilder::library)
      .def("epilogue", &PlanBuilder::epilogue)
      .def("part", &PlanBuilder::part)
      .def("region", &PlanBuilder::region)
      .def("run_part", &PlanBuilder::run_part)
      .def("transfer", &PlanBuilder::transfer)
      .def("place", &PlanBuilder::place)
      .def("free", &PlanBuilder::free)
      .def("output", &PlanBuilder::output)
      .def("backward", &PlanBuilder::backward)
      .def("accepts", &PlanBuilder::accepts)
      .def("run", &PlanBuilder::run)
      .def("keep", &PlanBuilder::keep)
      .def("on_host", &PlanBuilder::on_host)
      .def("parts", &PlanBuilder::parts)
      .def("writes", &PlanBuilder::writes)
      .def("set_program", &PlanBuilder::set_program)
      .def("lay_out", [](PlanBuilder& b) { b.plan->lays_out = true; })
      .def("set_device", [](PlanBuilder& b, int device) { b.plan->device = device; })
      .def("set_over_devices", [](PlanBuilder& b) { b.plan->over_devices = true; })
      .def("set_name", [](PlanBuilder& b, std::string name) { b.plan->name = std::move(name); })
      .def("set_returns_tuple", [](PlanBuilder& b, bool v) { b.plan->returns_tuple = v; })
      .def("set_rng_advance", [](PlanBuilder& b, int32_t s) { b.plan->rng_advance = s; });
}

}  // namespace tandem
