// Work that was queued on a stream of its own, beside what the current stream gets next.
//
// Note [Side work]
// A routine may queue its work on another stream: an all-reduce then runs while the device computes on. Until the
// current stream has waited for it, nothing that is queued there may touch its operands. Whoever runs the routine sees
// to that: it takes what the routine left (take_side_work), joins it before the first step that uses that memory or
// gives it back, and joins the rest at its end. In a graph that is being recorded, the same waits become its edges.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "device/cuda/driver.h"

namespace tandem::cuda {

class SideWork {
 public:
  using Span = std::pair<const char*, const char*>;  // first byte, behind the last one

  // `done` was recorded behind the work, on its stream; kept: memory that it needs and nobody else has.
  SideWork(Event done, std::vector<Span> memory, std::shared_ptr<void> kept);
  SideWork(SideWork&& other) noexcept;
  SideWork& operator=(SideWork&& other) noexcept;
  ~SideWork();

  bool uses(Span span) const;
  void join(Stream stream);  // what is queued there from now on comes after it

 private:
  Event done_ = nullptr;
  std::vector<Span> memory_;
  std::shared_ptr<void> kept_;
};

class SideWorks {
 public:
  bool empty() const { return works_.empty(); }
  void add(SideWork work) { works_.push_back(std::move(work)); }
  void join_users_of(SideWork::Span span, Stream stream);
  void join(Stream stream);  // all
  void clear() { works_.clear(); }

 private:
  std::vector<SideWork> works_;
};

// What the routine that just returned in this thread has left: empty, or one.
void leave_side_work(SideWork work);
std::vector<SideWork> take_side_work();

Event new_event();  // without timing

}  // namespace tandem::cuda
