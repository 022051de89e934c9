#include "queue/queue.h"

#include <algorithm>

namespace tandem {

namespace {

bool later(const Queue::Element& a, const Queue::Element& b) {  // for a heap with the smallest priority on top
  return a.priority != b.priority ? a.priority > b.priority : a.sequence > b.sequence;
}

constexpr auto kPoll = std::chrono::milliseconds(50);

}  // namespace

Queue::Queue(Order order, int64_t capacity, int64_t min_after_dequeue, uint64_t seed)
    : order_(order), capacity_(capacity), min_after_dequeue_(min_after_dequeue), random_(seed) {}

bool Queue::can_take() const {
  if (elements_.empty()) return false;
  return order_ != Order::Shuffle || closed_ || static_cast<int64_t>(elements_.size()) > min_after_dequeue_;
}

void Queue::put(Element element) {
  elements_.push_back(std::move(element));
  if (order_ == Order::Priority) std::push_heap(elements_.begin(), elements_.end(), later);
  counts_.most = std::max(counts_.most, static_cast<int64_t>(elements_.size()));
}

Queue::Element Queue::take() {
  if (order_ == Order::Fifo) {
    Element front = std::move(elements_.front());
    elements_.pop_front();
    return front;
  }
  if (order_ == Order::Shuffle) {
    std::uniform_int_distribution<size_t> pick(0, elements_.size() - 1);
    std::swap(elements_[pick(random_)], elements_.back());
  } else {
    std::pop_heap(elements_.begin(), elements_.end(), later);
  }
  Element back = std::move(elements_.back());
  elements_.pop_back();
  return back;
}

void Queue::put_back(Waiter& consumer) {
  std::vector<Element>& taken = *consumer.elements;
  while (!taken.empty()) {
    --counts_.dequeued;
    if (order_ == Order::Fifo)
      elements_.push_front(std::move(taken.back()));
    else
      put(std::move(taken.back()));
    taken.pop_back();
  }
}

void Queue::finish(std::deque<Waiter*>& line, Status status) {
  Waiter* front = line.front();
  line.pop_front();
  front->status = status;
  front->done = true;
  front->wake.notify_one();
}

// Lets those at the front of both lines do what they can.
void Queue::serve() {
  for (bool progress = true; progress;) {
    progress = false;
    while (!producers_.empty()) {
      Waiter& p = *producers_.front();
      for (; p.at < p.elements->size() && static_cast<int64_t>(elements_.size()) < capacity_; ++p.at) {
        put(std::move((*p.elements)[p.at]));
        ++counts_.enqueued;
        progress = true;
      }
      if (p.at < p.elements->size()) break;
      finish(producers_, Status::Ok);
      progress = true;
    }
    while (!consumers_.empty()) {
      Waiter& c = *consumers_.front();
      while (static_cast<int64_t>(c.elements->size()) < c.want && can_take()) {
        c.elements->push_back(take());
        ++counts_.dequeued;
        progress = true;
      }
      bool has_all = static_cast<int64_t>(c.elements->size()) == c.want;
      bool no_more = closed_ && elements_.empty() && producers_.empty();
      if (!has_all && !no_more) break;
      if (has_all || (c.fewer && !c.elements->empty())) {
        finish(consumers_, Status::Ok);
      } else {
        put_back(c);
        finish(consumers_, Status::Closed);
      }
      progress = true;
    }
  }
}

Queue::Status Queue::stand(std::unique_lock<std::mutex>& lock, std::deque<Waiter*>& line, Waiter& waiter,
                           const Wait& wait) {
  line.push_back(&waiter);
  serve();
  if (waiter.done) return waiter.status;
  ++(&line == &producers_ ? counts_.producer_waits : counts_.consumer_waits);
  // The cancellation's lock is taken before ours, always.
  lock.unlock();
  if (wait.sleep) wait.sleep();
  int64_t id = 0;
  if (wait.cancellation)
    id = wait.cancellation->add([this, &waiter] {
      std::lock_guard guard(mutex_);
      waiter.woken = true;
      waiter.wake.notify_one();
    });
  lock.lock();
  Status left = Status::Ok;
  while (!waiter.done && left == Status::Ok) {
    if (waiter.woken) {
      left = Status::Cancelled;
      break;
    }
    auto until = std::chrono::steady_clock::time_point::max();
    if (wait.interrupted) until = std::chrono::steady_clock::now() + kPoll;
    if (wait.deadline) until = std::min(until, *wait.deadline);
    if (until == std::chrono::steady_clock::time_point::max())
      waiter.wake.wait(lock);
    else
      waiter.wake.wait_until(lock, until);
    if (waiter.done || waiter.woken) continue;
    if (wait.deadline && std::chrono::steady_clock::now() >= *wait.deadline) left = Status::TimedOut;
    if (left == Status::Ok && wait.interrupted) {
      lock.unlock();
      bool stop = wait.interrupted();
      lock.lock();
      if (stop && !waiter.done) left = Status::Interrupted;
    }
  }
  if (!waiter.done) {
    line.erase(std::find(line.begin(), line.end(), &waiter));
    if (&line == &consumers_) put_back(waiter);
    waiter.status = left;
    serve();  // whoever stood behind may go on
  }
  lock.unlock();
  if (wait.cancellation) wait.cancellation->remove(id);
  if (wait.awake) wait.awake();
  return waiter.status;
}

Queue::Status Queue::enqueue(std::vector<Element>& elements, const Wait& wait) {
  std::unique_lock lock(mutex_);
  if (closed_) return Status::Closed;
  for (Element& e : elements) e.sequence = next_sequence_++;
  Waiter waiter;
  waiter.elements = &elements;
  return stand(lock, producers_, waiter, wait);
}

Queue::Status Queue::dequeue(int64_t count, bool fewer, std::vector<Element>& out, const Wait& wait) {
  std::unique_lock lock(mutex_);
  Waiter waiter;
  waiter.elements = &out;
  waiter.want = count;
  waiter.fewer = fewer;
  return stand(lock, consumers_, waiter, wait);
}

void Queue::close(bool cancel_pending) {
  std::lock_guard lock(mutex_);
  closed_ = true;
  if (cancel_pending)
    while (!producers_.empty()) finish(producers_, Status::Closed);
  serve();
}

int64_t Queue::size() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(elements_.size());
}
bool Queue::closed() const {
  std::lock_guard lock(mutex_);
  return closed_;
}
Queue::Counts Queue::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace tandem
