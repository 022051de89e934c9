// A library step's operands, gathered from a run: views of its values, inputs first, and its integers.
#pragma once
#include <cstdint>
#include <memory>

#include "check.h"
#include "library/registry.h"
#include "plan/plan.h"

namespace tandem {

class LibraryOperands {
 public:
  // view_of(index) gives the View of a value; ints are those of the run.
  template <typename ViewOf>
  LibraryOperands(const Instruction& in, const int64_t* ints, ViewOf view_of) : in_(in) {
    if (in.values.size() > kInline) {
      many_.reset(new View[in.values.size()]);
      views_ = many_.get();
    }
    for (size_t i = 0; i < in.values.size(); ++i) views_[i] = view_of(in.values[i]);
    TD_CHECK(in.ints.size() <= kMaxInts);
    for (size_t i = 0; i < in.ints.size(); ++i) ints_[i] = ints[in.ints[i]];
  }
  LibraryOperands(const LibraryOperands&) = delete;

  // Valid as long as this is.
  library::Call call() const {
    return {views_,
            in_.num_inputs,
            views_ + in_.num_inputs,
            static_cast<int>(in_.values.size()) - in_.num_inputs,
            ints_,
            static_cast<int>(in_.ints.size()),
            in_.floats.data(),
            static_cast<int>(in_.floats.size())};
  }

 private:
  static constexpr size_t kInline = 12, kMaxInts = 160;
  const Instruction& in_;
  View inline_[kInline];
  std::unique_ptr<View[]> many_;
  View* views_ = inline_;
  int64_t ints_[kMaxInts];
};

}  // namespace tandem
