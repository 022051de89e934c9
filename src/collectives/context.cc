#include <atomic>
#include <utility>

#include "collectives/background.h"
#include "collectives/communicator.h"
#include "modes.h"

namespace tandem::collectives {
namespace {

thread_local std::shared_ptr<Context> own;
std::shared_ptr<Context>& of_process() {
  static auto* context = new std::shared_ptr<Context>;  // never destroyed: ranks leave before, or by their process
  return *context;
}

}  // namespace

void Context::put(int64_t token, std::shared_ptr<Communicator> communicator) {
  if (groups_.size() <= static_cast<size_t>(token)) groups_.resize(token + 1);
  groups_[token] = std::move(communicator);
}

std::shared_ptr<Communicator> Context::find(int64_t token) const {
  return token >= 0 && token < static_cast<int64_t>(groups_.size()) ? groups_[token] : nullptr;
}

Communicator::Communicator() = default;
Communicator::~Communicator() = default;

Background& Communicator::background() {
  std::call_once(background_made_, [this] {
    background_ = std::make_unique<Background>(*this);
    has_background_ = true;
  });
  return *background_;
}

int64_t Communicator::next_number() {
  static std::atomic<int64_t> count{0};
  return ++count;
}

void Context::enter(std::shared_ptr<Context> context) {
  rank_in_process = context ? context->rank_in_process_ : 0;
  own = std::move(context);
}

void Context::set_default(std::shared_ptr<Context> context) {
  of_process() = std::move(context);
}

std::shared_ptr<Context> Context::current() {
  return own ? own : of_process();
}

}  // namespace tandem::collectives
