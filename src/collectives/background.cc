#include "collectives/background.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "collectives/member.h"
#include "library/registry.h"

namespace tandem::collectives {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);

// What this thread's rank has begun.
void settle_all() noexcept {
  const std::shared_ptr<Context> context = Context::current();
  if (!context) return;
  for (const auto& group : context->groups())
    if (group && group->has_background()) group->background().settle();
}

const bool connected = (library::settle = &settle_all, true);

}  // namespace

Background::~Background() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Background::begin(Request request) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  const auto made = std::make_shared<Begun>();
  made->request = std::move(request);
  open_.push_back(made);
  begun_.push_back(made);
  changed_.notify_all();
}

void Background::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !open_.empty(); });
    if (open_.empty()) return;
    const std::shared_ptr<Begun> one = open_.front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      group_.run(one->request);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    open_.pop_front();
    one->failure = failure;
    one->done = true;
    changed_.notify_all();
  }
}

// An interrupt ends this rank's part in the group, so that its thread, which works on the program's memory, comes back.
void Background::await(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Begun>& one) {
  while (!changed_.wait_for(lock, kLook, [&] { return one->done; })) {
    if (!check_interrupt) continue;
    lock.unlock();
    try {
      check_interrupt();
    } catch (...) {
      group_.leave(true, "it was interrupted");
      settle();
      throw;
    }
    lock.lock();
  }
}

void Background::wait(const char* out) {
  std::unique_lock lock(mutex_);
  const auto writes = [&](const std::shared_ptr<Begun>& one) {
    return std::ranges::any_of(one->request.pieces, [&](const Piece& piece) { return piece.out == out; });
  };
  const auto found = std::ranges::find_if(begun_, writes);
  if (found == begun_.end()) return;
  const std::shared_ptr<Begun> one = *found;
  begun_.erase(found);
  await(lock, one);
  if (one->failure) std::rethrow_exception(one->failure);
}

void Background::finish() {
  std::unique_lock lock(mutex_);
  while (!open_.empty()) await(lock, std::shared_ptr<Begun>(open_.back()));
}

void Background::settle() noexcept {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLook, [&] { return open_.empty(); })) {
    if (!check_interrupt) continue;
    lock.unlock();
    try {
      check_interrupt();
    } catch (...) {  // as above
      group_.leave(true, "it was interrupted");
    }
    lock.lock();
  }
  begun_.clear();
}

}  // namespace tandem::collectives
