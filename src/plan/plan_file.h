// Plans in files that need nothing else: calls of a PlanBuilder, the machine code of kernels, and constants, such as
// weights. Written by tandem/export/program.py.
//
// Note [Plan files]
// Numbers are little-endian. After a line that names the format come: the objects (u32 how many; each u64 bytes, then
// an ELF object whose function "kernel" is the kernel); the constants (u32; each u8 dtype, u8 axes, i64 sizes, then the
// elements, row-major); the inputs that a call brings, before the constants (u32; each u8 dtype, u8 axes, i64 sizes, -1
// for any); the calls of a plan. Calls are a u32 and so many of: a name (u8, characters), u8 arguments, each a letter
// and what it says: i an i64, d a double, s a string (u32, characters), I and D lists (u32, elements), K a kernel (u32,
// which object), P the calls of another plan.
#pragma once
#include <string>
#include <vector>

#include "plan/plan.h"
#include "ref.h"
#include "tensor/storage.h"
#include "tensor/view.h"

namespace tandem {

class PlanFile {
 public:
  explicit PlanFile(const std::string& path);  // throws an Error of kind Value for a file that is none

  struct Result {
    View view;
    Ref<Storage> storage;  // of the view's memory
  };
  size_t num_inputs() const { return inputs_.size(); }
  // Runs the plan on dense row-major inputs. Throws an Error of kind Shape where it is not for these sizes.
  std::vector<Result> run(const std::vector<View>& inputs) const;

 private:
  struct Constant {
    View view;
    Ref<Storage> storage;
  };
  Ref<Plan> plan_;
  std::vector<Constant> constants_;
  struct Input {
    DType dtype;
    std::vector<int64_t> shape;
  };
  std::vector<Input> inputs_;
  void check(const std::vector<View>& inputs) const;
};

}  // namespace tandem
