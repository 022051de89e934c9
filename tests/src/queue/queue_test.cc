// Queues: order, capacity, batches larger than the queue, closing, timeouts, cancellation, many threads.
// links: src/queue/queue.cc src/fork_guard.cc
#include "queue/queue.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>

using namespace tandem;
using Status = Queue::Status;
using namespace std::chrono_literals;

#define EXPECT(condition)                                                  \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (0)

namespace {

class Number final : public flow::Payload {
 public:
  explicit Number(int64_t v) : value(v) {}
  bool truth() const override { return value != 0; }
  const int64_t value;
};

Status put(Queue& q, std::vector<int64_t> numbers, const Queue::Wait& wait = {}) {
  std::vector<Queue::Element> elements;
  for (int64_t n : numbers) {
    Queue::Element e;
    e.row.push_back(flow::Token::adopt(new Number(n)));
    e.priority = n;
    elements.push_back(std::move(e));
  }
  return q.enqueue(elements, wait);
}
Status get(Queue& q, int64_t count, bool fewer, std::vector<int64_t>& out, const Queue::Wait& wait = {}) {
  std::vector<Queue::Element> elements;
  Status s = q.dequeue(count, fewer, elements, wait);
  out.clear();
  for (auto& e : elements) out.push_back(static_cast<const Number&>(*e.row[0]).value);
  return s;
}
Queue::Wait within(std::chrono::milliseconds time) {
  Queue::Wait w;
  w.deadline = std::chrono::steady_clock::now() + time;
  return w;
}
std::vector<int64_t> drain(Queue& q) {
  std::vector<int64_t> out;
  if (q.size()) EXPECT(get(q, q.size(), false, out) == Status::Ok);
  return out;
}
void until(const std::function<bool()>& condition) {
  for (int k = 0; k < 20000 && !condition(); ++k) std::this_thread::sleep_for(1ms);
  EXPECT(condition());
}

void orders() {
  Queue fifo(Queue::Order::Fifo, 10, 0, 1), priority(Queue::Order::Priority, 10, 0, 1);
  put(fifo, {3, 1, 2});
  EXPECT(drain(fifo) == (std::vector<int64_t>{3, 1, 2}));
  put(priority, {3, 1, 2, 1});
  EXPECT(drain(priority) == (std::vector<int64_t>{1, 1, 2, 3}));
  auto shuffled = [](uint64_t seed) {
    Queue q(Queue::Order::Shuffle, 100, 0, seed);
    std::vector<int64_t> numbers;
    for (int i = 0; i < 50; ++i) numbers.push_back(i);
    put(q, numbers);
    return drain(q);
  };
  std::vector<int64_t> a = shuffled(1);
  EXPECT(a == shuffled(1) && a != shuffled(2));
  EXPECT(std::set<int64_t>(a.begin(), a.end()).size() == 50);
}

void capacity_holds_producers_back() {
  Queue q(Queue::Order::Fifo, 2, 0, 1);
  EXPECT(put(q, {1, 2}) == Status::Ok);
  EXPECT(put(q, {3}, within(10ms)) == Status::TimedOut);
  EXPECT(q.size() == 2);
  EXPECT(put(q, {4, 5}, within(10ms)) == Status::TimedOut && q.size() == 2);
  std::thread producer([&] { EXPECT(put(q, {6, 7, 8}) == Status::Ok); });
  std::vector<int64_t> out;
  EXPECT(get(q, 5, false, out) == Status::Ok);  // more than the capacity
  EXPECT(out == (std::vector<int64_t>{1, 2, 6, 7, 8}));
  producer.join();
  EXPECT(q.counts().producer_waits >= 2 && q.counts().most <= 2);
}

void a_consumer_that_leaves_puts_back() {
  Queue q(Queue::Order::Fifo, 10, 0, 1);
  put(q, {1, 2});
  std::vector<int64_t> out;
  EXPECT(get(q, 3, false, out, within(10ms)) == Status::TimedOut && out.empty());
  EXPECT(drain(q) == (std::vector<int64_t>{1, 2}));
}

void closing() {
  Queue q(Queue::Order::Fifo, 2, 0, 1);
  put(q, {1, 2});
  std::thread waiting([&] { EXPECT(put(q, {3}) == Status::Ok); });  // pending: still served
  until([&] { return q.counts().producer_waits == 1; });
  q.close(false);
  EXPECT(put(q, {4}) == Status::Closed);
  std::vector<int64_t> out;
  EXPECT(get(q, 2, false, out) == Status::Ok);
  waiting.join();
  EXPECT(get(q, 2, false, out) == Status::Closed && out.empty());  // one is left: not enough
  EXPECT(get(q, 2, true, out) == Status::Ok && out == (std::vector<int64_t>{3}));
  EXPECT(get(q, 2, true, out) == Status::Closed);

  Queue c(Queue::Order::Fifo, 1, 0, 1);
  put(c, {1});
  std::thread cancelled([&] { EXPECT(put(c, {2}) == Status::Closed); });
  until([&] { return c.counts().producer_waits == 1; });
  c.close(true);
  cancelled.join();
  EXPECT(c.size() == 1);

  Queue e(Queue::Order::Fifo, 1, 0, 1);
  std::thread consumer([&] {
    std::vector<int64_t> got;
    EXPECT(get(e, 1, false, got) == Status::Closed);
  });
  until([&] { return e.counts().consumer_waits == 1; });
  e.close(false);
  consumer.join();
}

void shuffling_keeps_a_reserve() {
  Queue q(Queue::Order::Shuffle, 10, 3, 1);
  put(q, {1, 2, 3});
  std::vector<int64_t> out;
  EXPECT(get(q, 1, false, out, within(5ms)) == Status::TimedOut);
  put(q, {4});
  EXPECT(get(q, 1, false, out) == Status::Ok);
  EXPECT(get(q, 1, false, out, within(5ms)) == Status::TimedOut);
  q.close(false);  // then the reserve comes out too
  EXPECT(get(q, 3, false, out) == Status::Ok && out.size() == 3);
}

void cancellation_and_interruption() {
  Queue q(Queue::Order::Fifo, 1, 0, 1);
  flow::Cancellation cancellation;
  Queue::Wait wait;
  wait.cancellation = &cancellation;
  std::thread consumer([&] {
    std::vector<int64_t> out;
    EXPECT(get(q, 1, false, out, wait) == Status::Cancelled);
    EXPECT(get(q, 1, false, out, wait) == Status::Cancelled);  // at once
  });
  until([&] { return q.counts().consumer_waits == 1; });
  cancellation.cancel();
  consumer.join();
  put(q, {1});
  Queue::Wait polled;
  int polls = 0;
  polled.interrupted = [&] { return ++polls == 2; };
  EXPECT(put(q, {2}, polled) == Status::Interrupted);
  EXPECT(drain(q) == (std::vector<int64_t>{1}));
}

void many_threads(Queue::Order order, int64_t capacity, int64_t batch) {
  Queue q(order, capacity, 0, 1);
  constexpr int kProducers = 4, kConsumers = 4, kEach = 400;
  std::atomic<int64_t> total{0}, count{0};
  std::atomic<int> ordered{1};
  std::vector<std::thread> producers, consumers;
  for (int p = 0; p < kProducers; ++p)
    producers.emplace_back([&, p] {
      for (int i = 0; i < kEach; i += 2) EXPECT(put(q, {p * 10000 + i, p * 10000 + i + 1}) == Status::Ok);
    });
  for (int c = 0; c < kConsumers; ++c)
    consumers.emplace_back([&] {
      std::vector<int64_t> last(kProducers, -1), out;
      while (get(q, batch, true, out) == Status::Ok)
        for (int64_t n : out) {
          total += n;
          ++count;
          if (order == Queue::Order::Fifo && n % 10000 <= last[n / 10000]) ordered = 0;
          last[n / 10000] = n % 10000;
        }
    });
  for (auto& t : producers) t.join();
  q.close(false);
  for (auto& t : consumers) t.join();
  int64_t expected = 0;
  for (int p = 0; p < kProducers; ++p)
    for (int i = 0; i < kEach; ++i) expected += p * 10000 + i;
  EXPECT(count == kProducers * kEach && total == expected && ordered && q.size() == 0);
  EXPECT(q.counts().most <= capacity + batch * kConsumers);
}

void leaving_and_coming_under_load() {  // timeouts and cancellations lose nothing
  Queue q(Queue::Order::Fifo, 3, 0, 1);
  std::atomic<int64_t> put_in{0}, taken{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 150; ++i)
        if (put(q, {1}, within(1ms)) == Status::Ok) ++put_in;
    });
    threads.emplace_back([&] {
      std::vector<int64_t> out;
      while (!stop)
        if (get(q, 2, false, out, within(1ms)) == Status::Ok) taken += static_cast<int64_t>(out.size());
    });
  }
  for (int t = 0; t < 3; ++t) threads[2 * t].join();
  stop = true;
  for (int t = 0; t < 3; ++t) threads[2 * t + 1].join();
  EXPECT(put_in == taken + q.size());
}

}  // namespace

int main() {
  orders();
  capacity_holds_producers_back();
  a_consumer_that_leaves_puts_back();
  closing();
  shuffling_keeps_a_reserve();
  cancellation_and_interruption();
  for (auto order : {Queue::Order::Fifo, Queue::Order::Shuffle, Queue::Order::Priority})
    for (int64_t capacity : {1, 7, 1000}) many_threads(order, capacity, capacity == 7 ? 3 : 1);
  leaving_and_coming_under_load();
  std::puts("ok");
}
