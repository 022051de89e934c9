// Whose rule of promotion a call follows: Note [Tensors without axes] in tandem/promotion.py.
#pragma once
#include "callbacks.h"
#include "modes.h"
#include "operators/signature.h"

namespace tandem {

// While it lives, call_mode says whether tensors without axes adapt to those that have some. Python is asked only where
// the two rules differ, and only once somebody has asked for PyTorch's.
class PromotionRule {
 public:
  PromotionRule(const Argument* arguments, int count) {
    if (callbacks.axes_first) [[unlikely]]
      ask(arguments, count);
  }
  PromotionRule(const PromotionRule&) = delete;
  ~PromotionRule() {
    if (asked_) [[unlikely]]
      call_mode.axes_first = before_;
  }

 private:
  void ask(const Argument* arguments, int count);

  bool asked_ = false;
  uint8_t before_ = 0;
};

}  // namespace tandem
