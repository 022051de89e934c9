#include "device/cuda/side_work.h"

#include <algorithm>

namespace tandem::cuda {
namespace {

thread_local std::vector<SideWork> left;

}  // namespace

Event new_event() {
  constexpr unsigned kNoTiming = 2;
  Event event = nullptr;
  check(driver().event_create(&event, kNoTiming), "making an event");
  return event;
}

SideWork::SideWork(Event done, std::vector<Span> memory, std::shared_ptr<void> kept)
    : done_(done), memory_(std::move(memory)), kept_(std::move(kept)) {}

SideWork::SideWork(SideWork&& other) noexcept
    : done_(std::exchange(other.done_, nullptr)), memory_(std::move(other.memory_)), kept_(std::move(other.kept_)) {}

SideWork& SideWork::operator=(SideWork&& other) noexcept {
  std::swap(done_, other.done_);
  std::swap(memory_, other.memory_);
  std::swap(kept_, other.kept_);
  return *this;
}

SideWork::~SideWork() {
  if (done_) driver().event_destroy(done_);  // the driver keeps it until it has come
}

bool SideWork::uses(Span span) const {
  return std::any_of(memory_.begin(), memory_.end(),
                     [&](const Span& m) { return span.first < m.second && m.first < span.second; });
}

void SideWork::join(Stream stream) {
  check(driver().stream_wait_event(stream, done_, 0), "waiting for an event");
}

void SideWorks::join_users_of(SideWork::Span span, Stream stream) {
  std::erase_if(works_, [&](SideWork& work) {
    if (!work.uses(span)) return false;
    work.join(stream);
    return true;
  });
}

void SideWorks::join(Stream stream) {
  for (SideWork& work : works_) work.join(stream);
  works_.clear();
}

void leave_side_work(SideWork work) {
  left.push_back(std::move(work));
}

std::vector<SideWork> take_side_work() {
  return std::exchange(left, {});
}

}  // namespace tandem::cuda
