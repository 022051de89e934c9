// Queue: bounded, blocking, shared by threads. Elements are rows of payloads; what is in them is nobody's business
// here.
//
// Note [Who is served]
// Threads that must wait stand in line, producers in one and consumers in another, and are served in the order they
// came. A consumer at the front takes elements as they come, so it may want more than the queue holds; if it has to go
// (closed, cancelled, timed out) it puts back what it took. A producer at the front likewise adds what fits. So nobody
// starves, and a batch is never mixed with another consumer's.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include "executor/cancellation.h"
#include "executor/flow.h"
#include "fork_guard.h"

namespace tandem {

class Queue {
 public:
  using Row = std::vector<flow::Token>;
  struct Element {
    Row row;
    int64_t priority = 0;   // Priority: smaller comes out first
    uint64_t sequence = 0;  // when it came in
  };
  enum class Order { Fifo, Shuffle, Priority };
  enum class Status { Ok, Closed, Cancelled, TimedOut, Interrupted };

  struct Wait {  // how long to wait
    std::optional<std::chrono::steady_clock::time_point> deadline;
    flow::Cancellation* cancellation = nullptr;
    std::function<bool()> interrupted;   // asked every now and then, if given
    std::function<void()> sleep, awake;  // called around waiting: letting go of the GIL
  };

  Queue(Order order, int64_t capacity, int64_t min_after_dequeue, uint64_t seed);

  // Adds the elements, in order; those added before it had to stop stay. Closed: the queue was closed.
  Status enqueue(std::vector<Element>& elements, const Wait& wait);
  // Appends count elements to out. Closed: the queue is closed and has fewer; with `fewer`, those that are left are
  // given, if any.
  Status dequeue(int64_t count, bool fewer, std::vector<Element>& out, const Wait& wait);
  // No enqueue from now on. Producers that wait are still served unless cancel_pending; so are consumers, while
  // elements last.
  void close(bool cancel_pending);

  int64_t size() const;
  bool closed() const;
  int64_t capacity() const { return capacity_; }
  struct Counts {
    int64_t enqueued = 0, dequeued = 0, producer_waits = 0, consumer_waits = 0, most = 0;
  };
  Counts counts() const;

 private:
  struct Waiter {
    std::vector<Element>* elements;
    size_t at = 0;  // producer: how many went in
    int64_t want = 0;
    bool fewer = false, done = false, woken = false;
    Status status = Status::Ok;
    std::condition_variable wake;
  };

  bool can_take() const;
  void put(Element element);
  Element take();
  void put_back(Waiter& consumer);
  void serve();
  void finish(std::deque<Waiter*>& line, Status status);
  Status stand(std::unique_lock<std::mutex>& lock, std::deque<Waiter*>& line, Waiter& waiter, const Wait& wait);

  const Order order_;
  const int64_t capacity_, min_after_dequeue_;
  mutable std::mutex mutex_;                                                    // guards all below
  ForkGuard fork_{mutex_, [this] { producers_.clear(), consumers_.clear(); }};  // threads that a child does not have
  std::deque<Element> elements_;                                                // Priority: a heap
  uint64_t next_sequence_ = 0;
  std::deque<Waiter*> producers_, consumers_;
  bool closed_ = false;
  std::mt19937_64 random_;
  Counts counts_;
};

}  // namespace tandem
