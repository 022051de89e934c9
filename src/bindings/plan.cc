// Plans as Python builds them (tandem/program/write.py).
#include "plan/plan.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/cuda_function.h"
#include "capture/capture.h"
#include "check.h"
#include "device/cuda/device.h"
#include "operators/op_function.h"
#include "places.h"
#include "plan/plan_builder.h"
#include "plan/region.h"

namespace nb = nanobind;

namespace tandem {

namespace {

void prepare_device_kernels(Plan& plan);

// A PlanBuilder with what Python knows of the plan: kernels, which are compiled when it first runs, and what runs
// backward.
struct PythonPlanBuilder : PlanBuilder {
  void add_kernel(nb::object kernel) {
    if (!plan->kernels) plan->kernels = PyList_New(0);
    PyList_Append(plan->kernels, kernel.ptr());
  }
  void origin(std::string op, std::string file, std::string function, int line, int call, nb::object place) {
    PlanBuilder::origin(std::move(op), std::move(file), std::move(function), line, call);
    if (!place.is_none()) here = placed(*here, place.ptr());
  }
  void kernel(nb::object kernel, std::vector<int32_t> values, std::vector<int32_t> ints, int32_t extent, double cost,
              std::string label) {
    PlanBuilder::kernel(std::move(values), std::move(ints), extent, cost, std::move(label));
    add_kernel(std::move(kernel));
  }
  void epilogue(nb::object kernel, std::vector<int32_t> operands, std::vector<int32_t> ints, int32_t result,
                int32_t value, bool keeps, std::vector<int32_t> alike, double cost) {
    PlanBuilder::epilogue(std::move(operands), std::move(ints), result, value, keeps, std::move(alike), cost);
    add_kernel(std::move(kernel));
  }
  void update(nb::object kernel, std::vector<int32_t> operands, std::vector<int32_t> ints, int32_t extent,
              int32_t block, int32_t piece, int32_t result, std::vector<int32_t> dense, bool keeps, int64_t identity,
              double cost) {
    PlanBuilder::update(std::move(operands), std::move(ints), extent, block, piece, result, std::move(dense), keeps,
                        identity, cost);
    add_kernel(std::move(kernel));
  }
  void part(PythonPlanBuilder& builder, std::vector<int32_t> ints) {
    PlanBuilder::part(builder, std::move(ints));
    if (builder.plan->kernels && !plan->kernels) plan->kernels = PyList_New(0);
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
  void lazy_backward(nb::object function, std::vector<std::vector<int>> summands) {
    plan->backward_lazily = function.release().ptr();
    for (const std::vector<int>& kinds : summands) {
      std::vector<Plan::Summand>& own = plan->summands.emplace_back();
      for (int kind : kinds) own.push_back(static_cast<Plan::Summand>(kind));
    }
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
    return PlanBuilder::accepts(inputs);
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
  void keep(nb::object o) {
    Py_XDECREF(plan->keep);
    plan->keep = o.release().ptr();
  }
  // Note [Unwritten plans] in plan/plan.h. Other threads may run Python meanwhile, and find the plan as it was until
  // `take` has put everything into place.
  void write_later(nb::object writer) {
    Py_XDECREF(plan->unwritten);
    plan->unwritten = writer.release().ptr();
  }
  PythonPlanBuilder continued() const {
    PythonPlanBuilder copy;
    copy.plan->name = plan->name;
    copy.plan->initial = plan->initial;
    copy.plan->bindings = plan->bindings;
    copy.plan->int_ops = plan->int_ops;
    copy.plan->values = plan->values;
    return copy;
  }
  void take(PythonPlanBuilder& made) {
    Plan& full = *made.plan;
    plan->initial = std::move(full.initial);
    plan->bindings = std::move(full.bindings);
    plan->int_ops = std::move(full.int_ops);
    plan->values = std::move(full.values);
    plan->instructions = std::move(full.instructions);
    plan->num_prepared = full.num_prepared;
    plan->num_checks = full.num_checks;
    plan->waits = full.waits;
    plan->kernels = std::exchange(full.kernels, nullptr);
    Py_CLEAR(plan->unwritten);
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
    const auto list = nb::cast<std::vector<CudaFunction>>(owner);
    size_t k = 0;
    for (Instruction* instruction : instructions) {
      Instruction& in = *instruction;
      const CudaFunction& loaded = list.at(k++);
      in.function = reinterpret_cast<void*>(loaded.address);
      in.threads[0] = static_cast<uint16_t>(loaded.threads_x);
      in.threads[1] = static_cast<uint16_t>(loaded.threads_y);
      in.extra = static_cast<uint8_t>(loaded.extra);
      in.shared = loaded.shared;
    }
  } catch (nb::python_error& error) {
    error.restore();
    throw PythonError{};
  }
  forget_kernels(plan);
}

}  // namespace

Ref<Plan> plan_from_python(PyObject* object) {
  PythonPlanBuilder* builder = nullptr;
  if (!nb::try_cast<PythonPlanBuilder*>(nb::handle(object), builder) || !builder) {
    PyErr_SetString(PyExc_TypeError, "the compile callback must return a PlanBuilder");
    return nullptr;
  }
  return builder->plan;
}

static void write_instructions(Plan& plan) {
  nb::object writer = nb::borrow(plan.unwritten);
  try {
    PythonPlanBuilder builder;
    builder.plan = Ref<Plan>::share(&plan);
    writer(nb::cast(std::move(builder)));
  } catch (nb::python_error& error) {
    error.restore();
    throw PythonError{};
  }
  TD_CHECK(!plan.unwritten, "the instructions of ", plan.name, " were not written down");
}

void prepare_plan(Plan& plan) {
  if (plan.unwritten) write_instructions(plan);
  if (!plan.kernels) return;
  nb::object kernels = nb::borrow(plan.kernels);  // compiling runs Python, which may get here again
  size_t k = 0;
  if (plan.device && !plan.over_devices) return prepare_device_kernels(plan);
  try {
    for (Instruction& in : plan.instructions) {
      if (in.region)
        for (const Ref<Plan>& part : in.region->plans) prepare_plan(*part);
      const auto next = [&] {
        nb::object kernel = nb::borrow(PyList_GET_ITEM(kernels.ptr(), static_cast<Py_ssize_t>(k++)));
        return reinterpret_cast<KernelFunction>(nb::cast<uintptr_t>(kernel.attr("address")()));
      };
      if (in.kind == Instruction::Kind::Kernel) in.kernel = next();
      if (in.epilogue) in.epilogue->kernel = next();
      for (UpdateCode& update : in.updates) update.kernel = next();
    }
  } catch (nb::python_error& error) {
    error.restore();
    throw PythonError{};
  }
  Py_CLEAR(plan.kernels);
}

void register_plan(nb::module_& m) {
  nb::class_<PythonPlanBuilder>(m, "PlanBuilder")
      .def(nb::init<>())
      .def("slot", &PlanBuilder::slot)
      .def("bind", &PlanBuilder::bind)
      .def("int_op", &PlanBuilder::int_op)
      .def("guard", &PlanBuilder::guard)
      .def("value", &PlanBuilder::value)
      .def("origin", &PythonPlanBuilder::origin, nb::arg("op"), nb::arg("file"), nb::arg("function"), nb::arg("line"),
           nb::arg("call") = -1, nb::arg("place") = nb::none())
      .def("write_later", &PythonPlanBuilder::write_later, nb::arg("writer"),
           "The instructions are added by writer(builder), when the plan first runs.")
      .def("continued", &PythonPlanBuilder::continued, "A plan with the same sizes and values, to add instructions to.")
      .def("take", &PythonPlanBuilder::take, nb::arg("made"), "Takes the instructions over, and what they need.")
      .def("begin_writes", &PlanBuilder::begin_writes)
      .def("no_origin", &PlanBuilder::no_origin)
      .def("kernel", &PythonPlanBuilder::kernel)
      .def("library", &PlanBuilder::library)
      .def("epilogue", &PythonPlanBuilder::epilogue)
      .def("factors", &PlanBuilder::factors)
      .def("update", &PythonPlanBuilder::update)
      .def("part", &PythonPlanBuilder::part)
      .def("region", &PlanBuilder::region)
      .def("block_kernels", &PlanBuilder::block_kernels)
      .def("run_part", &PlanBuilder::run_part)
      .def("transfer", &PlanBuilder::transfer)
      .def("place", &PlanBuilder::place)
      .def("free", &PlanBuilder::free)
      .def("output", &PlanBuilder::output)
      .def("backward", &PythonPlanBuilder::backward)
      .def("lazy_backward", &PythonPlanBuilder::lazy_backward)
      .def("accepts", &PythonPlanBuilder::accepts)
      .def("run", &PythonPlanBuilder::run)
      .def("keep", &PythonPlanBuilder::keep)
      .def("on_host", &PlanBuilder::on_host)
      .def("parts", &PlanBuilder::parts)
      .def("writes", &PlanBuilder::writes)
      .def("set_program", &PlanBuilder::set_program)
      .def("lay_out", [](PythonPlanBuilder& b) { b.plan->lays_out = true; })
      .def("set_device", [](PythonPlanBuilder& b, int device) { b.plan->device = device; })
      .def("set_over_devices", [](PythonPlanBuilder& b) { b.plan->over_devices = true; })
      .def("set_name", [](PythonPlanBuilder& b, std::string name) { b.plan->name = std::move(name); })
      .def("set_returns_tuple", [](PythonPlanBuilder& b, bool v) { b.plan->returns_tuple = v; })
      .def("set_rng_advance", [](PythonPlanBuilder& b, int32_t s) { b.plan->rng_advance = s; });
}

}  // namespace tandem
