// Enums that Python and the runtime both speak of, and structs that they hand each other.
#include <nanobind/nanobind.h>

#include "bindings/bindings.h"
#include "bindings/cuda_function.h"
#include "capture/capture.h"
#include "collectives/communicator.h"
#include "executor/flow.h"
#include "operators/aliases.h"
#include "plan/plan.h"
#include "plan/region.h"
#include "profile/profile.h"
#include "tensor/layout_class.h"

namespace nb = nanobind;

namespace tandem {

void register_enums(nb::module_& m) {
  nb::list aliases;
  for (const Alias& alias : kAliases) aliases.append(nb::make_tuple(alias.given, alias.ours));
  m.attr("PARAMETER_ALIASES") = nb::tuple(aliases);
  nb::enum_<IntCode>(m, "IntCode", "What a plan computes of two integers.")
      .value("Add", IntCode::Add)
      .value("Mul", IntCode::Mul)
      .value("FloorDiv", IntCode::FloorDiv)
      .value("Mod", IntCode::Mod)
      .value("Min", IntCode::Min)
      .value("Max", IntCode::Max)
      .value("Sub", IntCode::Sub);
  nb::enum_<Relation>(m, "Relation", "Of a guard: of an integer with 0.")
      .value("Equal", Relation::Equal)
      .value("NotEqual", Relation::NotEqual)
      .value("Less", Relation::Less)
      .value("GreaterEqual", Relation::GreaterEqual);
  nb::enum_<ValueKind>(m, "ValueKind", "Where a value of a plan lies.")
      .value("Input", ValueKind::Input)
      .value("Fresh", ValueKind::Fresh)
      .value("View", ValueKind::View);
  nb::enum_<Binding::From>(m, "SizeFrom", "What of an input an integer of a plan is.")
      .value("Size", Binding::From::Size)
      .value("Stride", Binding::From::Stride)
      .value("Int", Binding::From::Int);
  nb::enum_<Region::Kind>(m, "RegionKind", "What a region does with its plans.")
      .value("Cond", Region::Kind::Cond)
      .value("Scan", Region::Kind::Scan)
      .value("While", Region::Kind::While)
      .value("Block", Region::Kind::Block)
      .value("Repeat", Region::Kind::Repeat);
  nb::enum_<SavedItem::From>(m, "SavedFrom", "What backward keeps.")
      .value("Input", SavedItem::From::Input)
      .value("Output", SavedItem::From::Output)
      .value("Temporary", SavedItem::From::Temporary);
  nb::enum_<LayoutClass>(m, "LayoutClass", "How a tensor's elements lie.")
      .value("Contiguous", LayoutClass::Contiguous)
      .value("Dense", LayoutClass::Dense)
      .value("Strided", LayoutClass::Strided);
  nb::enum_<OperandKind>(m, "OperandKind", "Where an operand of a captured call comes from.")
      .value("NoOperand", OperandKind::None)
      .value("Leaf", OperandKind::Leaf)
      .value("Result", OperandKind::Result)
      .value("Number", OperandKind::Number)
      .value("Int", OperandKind::Int);
  nb::enum_<Instruction::Extra>(m, "KernelExtra", "What follows the operands of a kernel of a device.")
      .value("Reports", Instruction::kReports)
      .value("Guarded", Instruction::kGuarded);
  nb::enum_<flow::Kind>(m, "FlowKind", "What a node of a dataflow graph does.")
      .value("Source", flow::Kind::Source)
      .value("Compute", flow::Kind::Compute)
      .value("Switch", flow::Kind::Switch)
      .value("Merge", flow::Kind::Merge)
      .value("Enter", flow::Kind::Enter)
      .value("Exit", flow::Kind::Exit)
      .value("NextIteration", flow::Kind::NextIteration)
      .value("LoopCond", flow::Kind::LoopCond)
      .value("Done", flow::Kind::Done)
      .value("Fetch", flow::Kind::Fetch);
  nb::enum_<profile::Kind>(m, "ProfileKind", "What an entry of a profile is.")
      .value("Operator", profile::Kind::Operator)
      .value("Kernel", profile::Kind::Kernel)
      .value("Library", profile::Kind::Library)
      .value("Region", profile::Kind::Region)
      .value("Copy", profile::Kind::Copy)
      .value("Compile", profile::Kind::Compile)
      .value("Wait", profile::Kind::Wait);
  nb::class_<CudaFunction>(m, "CudaFunction", "A kernel of a device, loaded: its address and how it is launched.")
      .def(nb::init<uintptr_t, int, int, int, uint32_t>(), nb::arg("address"), nb::arg("threads_x"),
           nb::arg("threads_y"), nb::arg("extra"), nb::arg("shared"));
}

}  // namespace tandem
