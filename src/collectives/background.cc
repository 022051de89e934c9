#include "collectives/background.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "collectives/member.h"
#include "library/registry.h"

namespace tandem::collectives {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);
thread_local bool serves_queue = false;

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

void Background::serve_queue() {
  serves_queue = true;
}

void Background::queue_done() {
  {
    const std::lock_guard lock(mutex_);
    --queued_;
  }
  changed_.notify_all();
}

void Background::begin(Request request) {
  std::unique_lock lock(mutex_);
  await_queue(lock);
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

template <typename Done, typename Interrupted>
void Background::await(std::unique_lock<std::mutex>& lock, Done done, Interrupted interrupted) {
  while (!changed_.wait_for(lock, kLook, done)) {
    if (!check_interrupt) continue;
    lock.unlock();
    try {
      check_interrupt();
    } catch (...) {
      interrupted();
      throw;
    }
    lock.lock();
  }
}

// An interrupt ends this rank's part in the group, so that its thread, which works on the program's memory, comes back.
void Background::await(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Begun>& one) {
  await(lock, [&] { return one->done; }, [&] {
    group_.leave(true, "it was interrupted");
    settle();
  });
}

void Background::await_queue(std::unique_lock<std::mutex>& lock) {
  if (serves_queue || !queued_.load()) return;
  await(lock, [&] { return !queued_.load(); }, [] {});
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
  await_queue(lock);
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
