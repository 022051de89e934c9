#include "dispatch/constants.h"

namespace tandem::dispatching {

std::shared_ptr<Constants> constants_of(const Plan& plan, int first, Argument* arguments, int count) {
  std::shared_ptr<Constants>& known = plan.constants;
  const auto is_same = [&](const Constants::Weight& weight, const Tensor* t) {
    return weight.storage.get() == t->storage && weight.data == t->view.data && weight.version == t->storage->version();
  };
  const auto number = static_cast<size_t>(count - first);
  bool same = known && known->weights.size() == number;
  for (size_t i = 0; same && i < number; ++i)
    same = is_same(known->weights[i], arguments[first + static_cast<int>(i)].tensor);
  if (same) return known;
  auto made = std::make_shared<Constants>(plan, static_cast<size_t>(first), static_cast<size_t>(count));
  for (int i = first; i < count; ++i) {
    const Tensor* t = arguments[i].tensor;
    made->weights.push_back({Ref<Storage>::share(t->storage), t->view.data, t->storage->version()});
  }
  known = made;
  return made;
}

bool has_constants(const OpFunction* op, const Plan& plan, Argument* arguments, int count) {
  if (op->constants < 0 || op->constants >= count || plan.device || plan.over_devices) return false;
  for (int i = op->constants; i < count; ++i)
    if (arguments[i].kind != Argument::Kind::Tensor) return false;
  return true;
}

}  // namespace tandem::dispatching
