// What plans are made with: by Python (bindings/plan.cc, tandem/program/write.py), or from a file (plan_file.h).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"
#include "plan/region.h"

namespace tandem {

// Each call adds to the plan. What calls refer to must be there, since they may come from a file: an Error of kind
// Value says what is not.
struct PlanBuilder {
  Ref<Plan> plan = Ref<Plan>::adopt(new Plan());
  std::shared_ptr<const Origin> here;  // of the instructions that follow

  void slots(const std::vector<int32_t>& indices, int32_t least = 0);
  void values(const std::vector<int32_t>& indices, int32_t least = -1);
  Instruction& last();

  void origin(std::string op, std::string file, std::string function, int line, int call);
  void no_origin();

  int32_t slot(int64_t value);
  int32_t bind(int kind, int32_t input, int32_t axis);
  int32_t int_op(int code, int32_t a, int32_t b);
  void guard(int relation, int32_t s);
  int32_t value(int kind, int dtype, int32_t source, int32_t offset, std::vector<int32_t> shape,
                std::vector<int32_t> strides);
  void kernel(std::vector<int32_t> values, std::vector<int32_t> ints, int32_t extent, double cost, std::string label);
  void library(const std::string& routine, std::vector<int32_t> inputs, std::vector<int32_t> outputs,
               std::vector<int32_t> ints, std::vector<double> floats, std::string label);
  // The kernel that follows the routine added last, on blocks of its result. `operands`: without the result, which is
  // put in at `result`; `value`: the result; `keeps`: whether it is among the routine's outputs.
  void epilogue(std::vector<int32_t> operands, std::vector<int32_t> ints, int32_t result, int32_t value, bool keeps,
                std::vector<int32_t> alike, double cost);
  // A kernel that follows the collective added last, on blocks of its result number `piece`, which is put in at
  // `result`; `dense`: operands that lie as it does.
  void factors(int32_t a, int32_t b, int32_t piece);
  void update(std::vector<int32_t> operands, std::vector<int32_t> ints, int32_t extent, int32_t block, int32_t piece,
              int32_t result, std::vector<int32_t> dense, bool keeps, int64_t identity, double cost);
  void begin_writes();
  std::shared_ptr<Region> next_region = std::make_shared<Region>();

  // The plan of a graph of the region that comes next, and which slots here are its integers.
  void part(PlanBuilder& builder, std::vector<int32_t> ints);
  void region(int kind, std::vector<int32_t> inputs, std::vector<int32_t> outputs, int32_t carried, int32_t scanned,
              int32_t extent, bool reverse);
  // The plans that were given last have the kernels that the routine added last calls for blocks; the inputs of each
  // follow the blocks, and are the routine's from `first` on.
  void block_kernels(int32_t first);
  // The plan that was given last, for one device, runs as part of this one.
  void run_part(std::vector<int32_t> inputs, std::vector<int32_t> outputs);
  static void check_part(const Plan& part, size_t tensors, size_t ints);
  void transfer(int32_t from, int32_t to);
  void place(int32_t value, int device, bool pinned);
  void free(std::vector<int32_t> values);
  void output(int32_t value, int32_t same_as_input, int32_t view_of_input, bool differentiable);
  // Several launches of the kernel that was added last become one: `extents` of each, all of whose operands it has.
  void parts(std::vector<int32_t> extents);
  // What the kernel that was added last writes.
  void writes(std::vector<int32_t> values);
  void on_host(int32_t value);
  // Of a program on a device: how many inputs it has, which of them it writes, and which lie on the host.
  void set_program(size_t inputs, std::vector<int32_t> written, std::vector<int32_t> host);
  bool accepts(const std::vector<InputView>& inputs) const;  // whether the plan serves these; an Error where it refers
                                                             // to others
};

}  // namespace tandem
