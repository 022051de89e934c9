// The tagged executor: tables of Switch, Merge and dead values, frames, iterations in flight, errors, waiting.
// links: src/executor/graph.cc src/executor/run.cc src/executor/helpers.cc src/fork_guard.cc
#include "executor/run.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "check.h"

using namespace tandem;
using namespace tandem::flow;

#define EXPECT(condition)                                                  \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (0)

namespace {

class Number final : public Payload {
 public:
  explicit Number(int64_t v) : value(v) { ++live; }
  ~Number() override { --live; }
  bool truth() const override { return value != 0; }
  const int64_t value;
  static inline std::atomic<int> live{0};
};
Token number(int64_t v) {
  return Token::adopt(new Number(v));
}
int64_t value(const Token& t) {
  return static_cast<const Number&>(*t).value;
}

class Lambda final : public Task {
 public:
  using Body = std::function<int64_t(const std::vector<int64_t>&, const Place&)>;
  explicit Lambda(Body body, bool blocking = false) : body_(std::move(body)), blocking_(blocking) {}
  void run(Token* inputs, int num_inputs, Token* outputs, int num_outputs, const Place& place) override {
    std::vector<int64_t> numbers;
    for (int i = 0; i < num_inputs; ++i) numbers.push_back(value(inputs[i]));
    int64_t result = body_(numbers, place);
    for (int k = 0; k < num_outputs; ++k) outputs[k] = number(result);
  }
  bool blocking() const override { return blocking_; }

 private:
  Body body_;
  bool blocking_;
};

struct Builder {
  std::vector<NodeSpec> specs;
  int32_t frames = 1;
  Port add(Kind kind, std::vector<Port> inputs, int32_t outputs) {
    NodeSpec s;
    s.kind = kind;
    s.inputs = std::move(inputs);
    s.num_outputs = outputs;
    specs.push_back(std::move(s));
    return {static_cast<int32_t>(specs.size()) - 1, 0};
  }
  Port source() { return add(Kind::Source, {}, 1); }
  Port compute(std::vector<Port> inputs, Lambda::Body body, bool blocking = false) {
    Port p = add(Kind::Compute, std::move(inputs), 1);
    specs[p.node].task = std::make_shared<Lambda>(std::move(body), blocking);
    return p;
  }
  struct Branches {
    Port no, yes;
  };
  Branches split(Port data, Port predicate) {
    Port p = add(Kind::Switch, {data, predicate}, 2);
    return {p, {p.node, 1}};
  }
  Port merge(std::vector<Port> inputs) { return add(Kind::Merge, std::move(inputs), 2); }
  int32_t frame() { return frames++; }
  Port enter(Port data, int32_t frame, bool constant = false, int32_t parallel = 10) {
    Port p = add(Kind::Enter, {data}, 1);
    specs[p.node].frame = frame;
    specs[p.node].constant = constant;
    specs[p.node].parallel = parallel;
    return p;
  }
  Port exit(Port data) { return add(Kind::Exit, {data}, 1); }
  Port next(Port data) { return add(Kind::NextIteration, {data}, 1); }
  void close(Port merge, Port value) { specs[merge.node].inputs.push_back(value); }
  void after(Port later, Port earlier) { specs[later.node].controls.push_back(earlier.node); }
  void fetch(Port p) { add(Kind::Fetch, {p}, 0); }
  Graph build() { return Graph(std::move(specs), frames); }
};

Outcome go(const Graph& g, const std::vector<int64_t>& sources, int threads = 1) {
  std::vector<Token> tokens;
  for (int64_t s : sources) tokens.push_back(number(s));
  Options options;
  options.threads = threads;
  options.index = &number;
  return run(g, std::move(tokens), options);
}

auto plus(int64_t k) {
  return [k](const std::vector<int64_t>& v, const Place&) { return v[0] + k; };
}
auto sum() {
  return [](const std::vector<int64_t>& v, const Place&) {
    int64_t total = 0;
    for (int64_t x : v) total += x;
    return total;
  };
}
auto less() {
  return [](const std::vector<int64_t>& v, const Place&) -> int64_t { return v[0] < v[1]; };
}

// -- tables

void switch_table() {
  for (int64_t p : {0, 1}) {
    Builder b;
    Port x = b.source(), predicate = b.source();
    auto [no, yes] = b.split(x, predicate);
    b.fetch(no);
    b.fetch(yes);
    b.fetch(b.compute({no}, plus(10)));  // a dead input: not run, dead result
    b.fetch(b.compute({yes}, plus(20)));
    b.fetch(b.compute({no, yes}, sum()));  // always one dead input
    Outcome o = go(b.build(), {7, p});
    EXPECT(!o.failure);
    EXPECT(bool(o.fetched[0]) == !p && bool(o.fetched[1]) == bool(p));
    EXPECT(!o.fetched[4]);
    EXPECT(value(o.fetched[p]) == 7);
    EXPECT(value(o.fetched[2 + p]) == (p ? 27 : 17) && !o.fetched[3 - p]);
    EXPECT(o.executed == 1);
  }
  // A dead predicate, or dead data: both outputs are dead.
  for (bool dead_data : {false, true}) {
    Builder b;
    Port x = b.source(), p = b.source(), q = b.source();
    Port dead = b.split(dead_data ? x : p, q).no;
    auto [no, yes] = dead_data ? b.split(dead, p) : b.split(x, dead);
    b.fetch(no);
    b.fetch(yes);
    Outcome o = go(b.build(), {1, 1, 1});
    EXPECT(!o.fetched[0] && !o.fetched[1] && o.executed == 0);
  }
}

void merge_table() {
  for (int64_t p : {0, 1})
    for (int64_t q : {0, 1}) {
      Builder b;
      Port x = b.source(), y = b.source(), pp = b.source(), qq = b.source();
      Port merged = b.merge({b.split(x, pp).yes, b.split(y, qq).yes});
      b.fetch(merged);
      b.fetch({merged.node, 1});
      Outcome o = go(b.build(), {5, 6, p, q});
      if (!p && !q) {
        EXPECT(!o.fetched[0] && !o.fetched[1]);  // all inputs dead
      } else if (p != q) {
        EXPECT(value(o.fetched[0]) == (p ? 5 : 6) && value(o.fetched[1]) == (p ? 0 : 1));
      } else {
        EXPECT(value(o.fetched[0]) == 5 + value(o.fetched[1]));  // both live: the first that came
      }
    }
}

void control_table() {
  for (int64_t p : {0, 1}) {
    Builder b;
    Port x = b.source(), predicate = b.source();
    auto [no, yes] = b.split(x, predicate);
    (void)no;
    std::atomic<int> order{0};
    int first = -1, second = -1;
    Port a = b.compute({yes}, [&](const std::vector<int64_t>& v, const Place&) {
      first = order++;
      return v[0];
    });
    Port c = b.compute({x}, [&](const std::vector<int64_t>& v, const Place&) {
      second = order++;
      return v[0];
    });
    b.after(c, a);  // order only: a dead node makes what waits for it dead too
    Port d = b.merge({x});
    b.after(d, c);
    b.fetch(c);
    b.fetch(d);
    Outcome o = go(b.build(), {3, p});
    EXPECT(bool(o.fetched[0]) == bool(p) && bool(o.fetched[1]) == bool(p));
    if (p) EXPECT(first == 0 && second == 1);
  }
}

void order_does_not_spread_deadness() {
  for (int64_t p : {0, 1}) {
    Builder b;
    Port x = b.source(), predicate = b.source();
    std::atomic<int> order{0};
    int first = -1, second = -1;
    Port a = b.compute({b.split(x, predicate).yes}, [&](const std::vector<int64_t>& v, const Place&) {
      first = order++;
      return v[0];
    });
    Port c = b.compute({x}, [&](const std::vector<int64_t>& v, const Place&) {
      second = order++;
      return v[0];
    });
    b.specs[c.node].orders.push_back(a.node);
    b.fetch(c);
    Outcome o = go(b.build(), {3, p});
    EXPECT(value(o.fetched[0]) == 3 && first == (p ? 0 : -1) && second == (p ? 1 : 0));
  }
}

void classic_example() {  // x + z if x < y else y * y
  auto check = [](int64_t x, int64_t y, int64_t z) {
    Builder b;
    Port px = b.source(), py = b.source(), pz = b.source();
    Port p = b.compute({px, py}, less());
    Port added = b.compute({b.split(px, p).yes, b.split(pz, p).yes}, sum());
    Port square =
        b.compute({b.split(py, p).no}, [](const std::vector<int64_t>& v, const Place&) { return v[0] * v[0]; });
    b.fetch(b.merge({added, square}));
    Outcome o = go(b.build(), {x, y, z});
    EXPECT(value(o.fetched[0]) == (x < y ? x + z : y * y));
    EXPECT(o.executed == 2);  // the comparison and one branch
  };
  check(1, 2, 5);
  check(3, 2, 5);
}

// -- loops

struct Loop {
  Port merge, body, result;
};
// i = start; while i < limit: i = step(i)
Loop loop(Builder& b, Port start, Port limit, int32_t parallel, Lambda::Body step, int32_t* frame_out = nullptr) {
  int32_t f = b.frame();
  if (frame_out) *frame_out = f;
  Port n = b.enter(limit, f, true, parallel);
  Port m = b.merge({b.enter(start, f, false, parallel)});
  Port p = b.add(Kind::LoopCond, {b.compute({m, n}, less())}, 1);
  auto [out, body] = b.split(m, p);
  b.close(m, b.next(b.compute({body}, std::move(step))));
  return {m, body, b.exit(out)};
}

void loops() {
  for (int64_t n : {0, 1, 5, 1000}) {
    Builder b;
    Port start = b.source(), limit = b.source();
    Loop l = loop(b, start, limit, 4, plus(1));
    b.fetch(l.result);
    Outcome o = go(b.build(), {0, n});
    EXPECT(value(o.fetched[0]) == n);
    EXPECT(o.executed == 2 * n + 1);
  }
}

void loop_on_a_dead_branch_gives_a_dead_result() {
  Builder b;
  Port start = b.source(), limit = b.source(), p = b.source();
  Port dead = b.split(start, p).no;
  Loop l = loop(b, dead, limit, 4, plus(1));
  b.fetch(l.result);
  b.fetch(b.merge({l.result, start}));
  Outcome o = go(b.build(), {3, 9, 1});
  EXPECT(!o.fetched[0] && value(o.fetched[1]) == 3 && o.executed == 0);
}

void nested_loops() {  // i from 0 to n; inside, j from 0 to i; counts inner rounds
  for (int parallel : {1, 2, 10}) {
    Builder b;
    Port zero = b.source(), n = b.source();
    int32_t outer = b.frame();
    Port limit = b.enter(n, outer, true, parallel), start = b.enter(zero, outer, true, parallel);
    Port i = b.merge({b.enter(zero, outer, false, parallel)}), total = b.merge({b.enter(zero, outer, false, parallel)});
    Port p = b.add(Kind::LoopCond, {b.compute({i, limit}, less())}, 1);
    auto [i_out, i_body] = b.split(i, p);
    auto [t_out, t_body] = b.split(total, p);
    Loop inner = loop(b, start, i_body, parallel, plus(1));
    b.close(i, b.next(b.compute({i_body}, plus(1))));
    b.close(total, b.next(b.compute({t_body, inner.result}, sum())));
    b.fetch(b.exit(t_out));
    b.fetch(b.exit(i_out));
    Outcome o = go(b.build(), {0, 30}, parallel == 10 ? 3 : 1);
    EXPECT(!o.failure && value(o.fetched[0]) == 30 * 29 / 2 && value(o.fetched[1]) == 30);
    EXPECT(o.most_iterations <= parallel);
  }
}

void branch_in_a_loop() {  // Collatz steps of 27
  Builder b;
  Port start = b.source(), zero = b.source();
  int32_t f = b.frame();
  Port x = b.merge({b.enter(start, f)}), count = b.merge({b.enter(zero, f)});
  Port p = b.add(Kind::LoopCond, {b.compute({x}, [](auto& v, const Place&) -> int64_t { return v[0] != 1; })}, 1);
  auto [x_out, x_body] = b.split(x, p);
  (void)x_out;
  auto [c_out, c_body] = b.split(count, p);
  Port odd = b.compute({x_body}, [](auto& v, const Place&) { return v[0] % 2; });
  auto [even_x, odd_x] = b.split(x_body, odd);
  Port halved = b.compute({even_x}, [](auto& v, const Place&) { return v[0] / 2; });
  Port tripled = b.compute({odd_x}, [](auto& v, const Place&) { return 3 * v[0] + 1; });
  b.close(x, b.next(b.merge({halved, tripled})));
  b.close(count, b.next(b.compute({c_body}, plus(1))));
  b.fetch(b.exit(c_out));
  Outcome o = go(b.build(), {27, 0});
  EXPECT(value(o.fetched[0]) == 111);
  EXPECT(o.executed == 112 + 111 * 3);  // per round: compare, odd?, one branch, count
}

void iterations_in_flight() {
  // i runs ahead of the slow work on it, up to parallel_iterations.
  for (int32_t parallel : {1, 3, 8}) {
    Builder b;
    Port zero = b.source(), n = b.source();
    int32_t f = b.frame();
    Port limit = b.enter(n, f, true, parallel);
    Port i = b.merge({b.enter(zero, f, false, parallel)}), acc = b.merge({b.enter(zero, f, false, parallel)});
    Port p = b.add(Kind::LoopCond, {b.compute({i, limit}, less())}, 1);
    auto [i_out, i_body] = b.split(i, p);
    (void)i_out;
    auto [a_out, a_body] = b.split(acc, p);
    std::atomic<int> under_way{0}, most{0};
    Port slow = b.compute(
        {i_body},
        [&](const std::vector<int64_t>& v, const Place&) {
          int now = ++under_way;
          for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
          }
          std::this_thread::sleep_for(std::chrono::milliseconds(3));
          --under_way;
          return v[0] * v[0];
        },
        true);
    b.close(i, b.next(b.compute({i_body}, plus(1))));
    b.close(acc, b.next(b.compute({a_body, slow}, sum())));
    b.fetch(b.exit(a_out));
    Outcome o = go(b.build(), {0, 20}, 4);
    EXPECT(value(o.fetched[0]) == 2470);
    EXPECT(o.most_iterations <= parallel);
    EXPECT(parallel == 1 ? most == 1 : most > 1 && most <= parallel);
  }
}

void order_after_a_whole_frame() {
  Builder b;
  Port start = b.source(), limit = b.source();
  std::atomic<int> rounds{0};
  int32_t f;
  Loop l = loop(
      b, start, limit, 10,
      [&](const std::vector<int64_t>& v, const Place&) {
        ++rounds;
        return v[0] + 1;
      },
      &f);
  Port done = b.add(Kind::Done, {}, 0);
  b.specs[done.node].frame = f;
  Port seen = b.compute({start}, [&](const std::vector<int64_t>&, const Place&) -> int64_t { return rounds; });
  b.after(seen, done);
  b.fetch(seen);
  b.fetch(l.result);
  Outcome o = go(b.build(), {0, 50});
  EXPECT(value(o.fetched[0]) == 50);
}

void places_do_not_depend_on_threads() {
  auto keys = [](int threads) {
    Builder b;
    Port start = b.source(), limit = b.source();
    std::mutex mutex;
    std::vector<uint64_t> seen(20);
    Loop l = loop(b, start, limit, 5, [&](const std::vector<int64_t>& v, const Place& place) {
      std::lock_guard guard(mutex);
      seen[v[0]] = place.key;
      return v[0] + 1;
    });
    b.fetch(l.result);
    go(b.build(), {0, 20}, threads);
    return seen;
  };
  std::vector<uint64_t> once = keys(1);
  EXPECT(once == keys(4));
  for (size_t i = 0; i < once.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT(once[i] != once[j]);
}

// -- what goes wrong

void failures_stop_the_run() {
  Builder b;
  Port start = b.source(), limit = b.source();
  Loop l = loop(b, start, limit, 10, [](const std::vector<int64_t>& v, const Place&) -> int64_t {
    if (v[0] == 7) throw std::runtime_error("seven");
    return v[0] + 1;
  });
  b.fetch(l.result);
  Outcome o = go(b.build(), {0, 50}, 3);
  EXPECT(o.failure && o.failed_node >= 0);
  try {
    std::rethrow_exception(o.failure);
  } catch (const std::runtime_error& e) {
    EXPECT(std::string(e.what()) == "seven");
  }
}

void waiting_tasks_are_cancelled() {
  for (bool by_failure : {false, true}) {
    Builder b;
    Port x = b.source();
    Port waiting = b.compute(
        {x},
        [](const std::vector<int64_t>& v, const Place& place) {
          std::mutex mutex;
          std::condition_variable wake;
          bool woken = false;
          int64_t id = place.cancellation->add([&] {
            std::lock_guard guard(mutex);
            woken = true;
            wake.notify_all();
          });
          {
            std::unique_lock lock(mutex);
            wake.wait(lock, [&] { return woken; });
          }
          place.cancellation->remove(id);
          return v[0];
        },
        true);
    Port other = b.compute({x}, [by_failure](const std::vector<int64_t>& v, const Place&) {
      if (by_failure) throw std::runtime_error("other");
      return v[0];
    });
    b.fetch(waiting);
    b.fetch(other);
    Graph g = b.build();
    Options options;
    options.threads = 2;
    options.index = &number;
    std::thread canceller;
    if (!by_failure)
      canceller = std::thread([c = options.cancellation] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        c->cancel();
      });
    std::vector<Token> sources{number(1)};
    Outcome o = run(g, std::move(sources), options);
    if (canceller.joinable()) canceller.join();
    if (by_failure) EXPECT(o.failure);
  }
}

void interruption() {
  Builder b;
  Port start = b.source(), limit = b.source();
  Loop l = loop(b, start, limit, 10, [](const std::vector<int64_t>& v, const Place&) { return v[0]; });  // for ever
  b.fetch(l.result);
  Graph g = b.build();
  Options options;
  options.index = &number;
  int polls = 0;
  options.interrupted = [&] { return ++polls == 3; };
  std::vector<Token> sources;
  sources.push_back(number(0));
  sources.push_back(number(1));
  Outcome o = run(g, std::move(sources), options);
  EXPECT(o.interrupted && polls == 3);
}

void malformed_graphs_are_refused() {
  auto refused = [](const std::function<void(Builder&)>& wire) {
    Builder b;
    wire(b);
    try {
      b.build();
    } catch (const Error&) {
      return true;
    }
    return false;
  };
  EXPECT(refused([](Builder& b) { b.fetch({7, 0}); }));
  EXPECT(refused([](Builder& b) { b.fetch({b.source().node, 1}); }));
  EXPECT(refused([](Builder& b) { b.exit(b.source()); }));
  EXPECT(refused([](Builder& b) { b.next(b.source()); }));
  EXPECT(refused([](Builder& b) {  // two frames at once
    Port x = b.source();
    b.compute({x, b.enter(x, b.frame())}, sum());
  }));
  EXPECT(refused([](Builder& b) { b.fetch(b.enter(b.source(), b.frame())); }));
  EXPECT(refused([](Builder& b) {  // nothing reaches it
    Port m = b.merge({{1, 0}});
    b.next(m);
  }));
  EXPECT(refused([](Builder& b) { b.frame(); }));
}

void many_runs_at_once() {
  Builder b;
  Port start = b.source(), limit = b.source();
  Loop l = loop(b, start, limit, 6, plus(1));
  Port twice = b.compute({l.result, start}, sum());
  b.fetch(twice);
  Graph g = b.build();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&g, t] {
      for (int k = 0; k < 20; ++k) {
        Outcome o = go(g, {t, 100 + k}, 2);
        EXPECT(!o.failure && value(o.fetched[0]) == 100 + k + t);
      }
    });
  for (auto& t : threads) t.join();
}

void random_graphs_on_many_threads() {
  // Layers of sums with random Switch/Merge pairs; the same numbers on one thread and on four.
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    auto make = [seed](Builder& b) {
      uint64_t state = seed;
      auto random = [&state](uint64_t n) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return static_cast<size_t>((state >> 33) % n);
      };
      std::vector<Port> values{b.source(), b.source()};
      for (int k = 0; k < 60; ++k) {
        Port x = values[random(values.size())], y = values[random(values.size())];
        if (random(3) == 0) {
          Port p = b.compute({y}, [](auto& v, const Place&) { return v[0] & 1; });
          auto [no, yes] = b.split(x, p);
          values.push_back(b.merge({b.compute({no}, plus(3)), b.compute({yes}, plus(5))}));
        } else {
          Port z = b.compute({x, y}, [](auto& v, const Place&) { return (v[0] * 31 + v[1]) % 1000003; });
          b.specs[z.node].task->nanoseconds = 100000;  // so that helpers are called
          values.push_back(z);
        }
      }
      for (size_t k = values.size() - 20; k < values.size(); ++k) b.fetch(values[k]);
    };
    Builder one, four;
    make(one);
    make(four);
    Outcome a = go(one.build(), {3, 4}, 1), c = go(four.build(), {3, 4}, 4);
    for (size_t k = 0; k < a.fetched.size(); ++k) EXPECT(value(a.fetched[k]) == value(c.fetched[k]));
  }
}

}  // namespace

int main() {
  switch_table();
  merge_table();
  control_table();
  order_does_not_spread_deadness();
  classic_example();
  loops();
  loop_on_a_dead_branch_gives_a_dead_result();
  nested_loops();
  branch_in_a_loop();
  iterations_in_flight();
  order_after_a_whole_frame();
  places_do_not_depend_on_threads();
  failures_stop_the_run();
  waiting_tasks_are_cancelled();
  interruption();
  malformed_graphs_are_refused();
  many_runs_at_once();
  random_graphs_on_many_threads();
  EXPECT(Number::live == 0);
  std::puts("ok");
}
