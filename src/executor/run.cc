#include "executor/run.h"

#include <algorithm>
#include <chrono>

#include "check.h"
#include "executor/helpers.h"

namespace tandem::flow {

namespace {

using Node = Graph::Node;
using Edge = Graph::Edge;
using State = Graph::Initial;

constexpr int64_t kExpensive = 50000;  // nanoseconds: below, handing a task to another thread costs more than it gives
constexpr int kPollEvery = 4096;

uint64_t mix(uint64_t a, uint64_t b) {  // splitmix64
  uint64_t z = a + 0x9E3779B97F4A7C15ull * (b + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

struct FrameRun;

struct Iteration {
  FrameRun* frame = nullptr;
  int64_t number = 0;
  uint64_t key = 0;
  int64_t outstanding = 0;  // nodes ready or running, frames entered from here that are not over
  std::vector<State> states;
  std::vector<Token> slots;
  std::vector<std::unique_ptr<FrameRun>> children;
};

struct FrameRun {
  const Graph::Frame* def;
  int32_t id;
  Iteration* parent;  // null for the outermost
  uint64_t key;
  int64_t started = 0;  // iterations so far
  std::deque<std::unique_ptr<Iteration>> active;
  int32_t enters_missing;
  struct Invariant {
    bool there = false, dead = false;
    int32_t node = -1;
    Token value;
  };
  std::vector<Invariant> invariants;
  std::vector<std::pair<int32_t, Token>> deferred;  // for the next iteration, which must wait: (NextIteration, value)
  std::vector<bool> exited;
};

struct Ready {
  Iteration* iteration;
  int32_t node;
};

class ReadyQueue {  // a ring that grows
 public:
  bool empty() const { return head_ == tail_; }
  size_t size() const { return tail_ - head_; }
  void push(Ready r) {
    if (size() == items_.size()) grow();
    items_[tail_++ & (items_.size() - 1)] = r;
  }
  Ready pop() { return items_[head_++ & (items_.size() - 1)]; }
  void clear() { head_ = tail_; }

 private:
  void grow() {
    std::vector<Ready> larger(items_.size() * 2);
    for (size_t i = head_; i != tail_; ++i) larger[i & (larger.size() - 1)] = items_[i & (items_.size() - 1)];
    items_.swap(larger);
  }
  std::vector<Ready> items_ = std::vector<Ready>(64);
  size_t head_ = 0, tail_ = 0;
};

class Run : public std::enable_shared_from_this<Run> {
 public:
  Run(const Graph& graph, const Options& options) : graph_(graph), options_(options) {
    spare_.resize(graph.frames().size());
    outcome_.fetched.resize(graph.num_fetches());
  }

  Outcome run(std::vector<Token> sources) {
    std::unique_lock lock(mutex_);
    int64_t waker = options_.cancellation->add([self = shared_from_this()] { self->changed_.notify_all(); });
    start(sources);
    sources.clear();
    work(lock, true);
    changed_.wait(lock, [this] { return busy_ == 0; });
    root_.reset();
    spare_.clear();
    lock.unlock();
    options_.cancellation->remove(waker);
    return std::move(outcome_);
  }

 private:
  // -- threads

  bool over() const { return finished_ || stopping_; }

  void stop(int32_t node, std::exception_ptr failure) {
    if (!stopping_) {
      outcome_.failed_node = node;
      outcome_.failure = std::move(failure);
    }
    stopping_ = true;
    ready_.clear();
    changed_.notify_all();
    options_.cancellation->cancel();  // wakes tasks that wait
  }

  // Runs what is ready until the run is over (the caller's thread) or nothing is ready (a helper).
  void work(std::unique_lock<std::mutex>& lock, bool main) {
    int countdown = kPollEvery;
    while (!over()) {
      if (ready_.empty()) {
        if (!main) return;
        if (busy_ == 0) {
          stop(-1, std::make_exception_ptr(Error(ErrorKind::Internal, "a dataflow run came to a halt")));
          return;
        }
        changed_.wait_for(lock, std::chrono::milliseconds(50), [this] { return over() || !ready_.empty(); });
        if (!over() && ready_.empty()) poll(lock);
        continue;
      }
      if (main && --countdown == 0) {
        countdown = kPollEvery;
        poll(lock);
        continue;
      }
      step(lock, ready_.pop());
    }
  }

  void poll(std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    bool interrupted = options_.interrupted && options_.interrupted();
    bool cancelled = options_.cancellation->cancelled();
    lock.lock();
    if (interrupted) outcome_.interrupted = true;
    if (interrupted || cancelled) stop(-1, std::make_exception_ptr(Cancelled{}));
  }

  void help() {
    ++busy_;
    ++computing_;
    start_helper([self = shared_from_this()] {
      self->begin_thread();
      std::unique_lock lock(self->mutex_);
      self->work(lock, false);
      --self->computing_;
      --self->busy_;
      self->changed_.notify_all();
    });
  }

  void begin_thread() {
    if (options_.begin_thread) options_.begin_thread();
  }

  // -- executing

  void step(std::unique_lock<std::mutex>& lock, Ready r) {
    const Node& node = graph_.nodes()[r.node];
    Iteration& it = *r.iteration;
    State& state = it.states[node.local];
    Token* slots = it.slots.data() + node.first_slot;
    if (state.dead && !node.always) {
      ++outcome_.skipped;
      for (int32_t i = 0; i < node.num_inputs; ++i) slots[i] = nullptr;
      send_dead(node, it);
      return finish(it);
    }
    switch (node.kind) {
      case Kind::Switch: {
        Token predicate = std::move(slots[1]);
        Token value = std::move(slots[0]);
        bool taken = false;
        if (!read(lock, *predicate, r.node, taken)) return;
        send(node.consumers[taken], it, std::move(value));
        send_dead(node.consumers[!taken], it);
        send(node.after, it, nullptr);
        break;
      }
      case Kind::Merge: {
        int32_t chosen = state.dead_inputs;  // deliver_merge left it there
        Token value = std::move(slots[chosen]);
        for (int32_t i = 0; i < node.num_inputs; ++i) slots[i] = nullptr;
        send(node.consumers[0], it, std::move(value));
        if (!node.consumers[1].empty()) send(node.consumers[1], it, options_.index(chosen));
        send(node.after, it, nullptr);
        break;
      }
      case Kind::Source:
      case Kind::LoopCond:
        send(node.consumers[0], it, std::move(slots[0]));
        send(node.after, it, nullptr);
        break;
      case Kind::Enter:
        enter(node, r.node, it, std::move(slots[0]), false);
        break;
      case Kind::NextIteration:
        next(r.node, it, std::move(slots[0]));
        send(node.after, it, nullptr);
        break;
      case Kind::Exit: {
        FrameRun& frame = *it.frame;
        Token value = std::move(slots[0]);
        if (!frame.exited[node.target]) {
          frame.exited[node.target] = true;
          send(node.consumers[0], *frame.parent, std::move(value));
          send(node.after, *frame.parent, nullptr);
        }
        break;
      }
      case Kind::Done:
        send(node.after, it, nullptr);
        break;
      case Kind::Fetch:
        outcome_.fetched[node.target] = std::move(slots[0]);
        break;
      case Kind::Compute:
        return compute(lock, node, r);
    }
    finish(it);
  }

  // A predicate's value. False: it could not be had, or the run is over meanwhile.
  bool read(std::unique_lock<std::mutex>& lock, const Payload& predicate, int32_t node, bool& truth) {
    const bool waits = predicate.waits();
    std::exception_ptr failure;
    if (waits) {
      ++busy_;
      lock.unlock();
    }
    try {
      truth = predicate.truth();
    } catch (...) {
      failure = std::current_exception();
    }
    if (waits) {
      lock.lock();
      --busy_;
    }
    if (failure) stop(node, failure);
    return !over();
  }

  void compute(std::unique_lock<std::mutex>& lock, const Node& node, Ready r) {
    Iteration& it = *r.iteration;
    if (!node.task) {  // a group: order only
      send(node.after, it, nullptr);
      return finish(it);
    }
    if (node.task->blocking() && !(node.task->waits_here() && ready_.empty())) {
      ++busy_;
      start_helper([self = shared_from_this(), &node, r] {
        self->begin_thread();
        std::unique_lock helper(self->mutex_);
        if (!self->over()) self->execute(helper, node, r);
        if (!self->over()) self->work(helper, false);
        --self->busy_;
        self->changed_.notify_all();
      });
      return;
    }
    if (!ready_.empty() && computing_ + 1 < options_.threads &&
        node.task->nanoseconds.load(std::memory_order_relaxed) > kExpensive)
      help();
    execute(lock, node, r);
  }

  void execute(std::unique_lock<std::mutex>& lock, const Node& node, Ready r) {
    constexpr int kInline = 16;
    Token inline_tokens[kInline];
    std::vector<Token> many;
    Iteration& it = *r.iteration;
    int total = node.num_inputs + node.num_outputs;
    Token* inputs = inline_tokens;
    if (total > kInline) {
      many.resize(total);
      inputs = many.data();
    }
    Token* outputs = inputs + node.num_inputs;
    for (int32_t i = 0; i < node.num_inputs; ++i) inputs[i] = std::move(it.slots[node.first_slot + i]);
    ++outcome_.executed;
    ++busy_;
    bool timed = options_.threads > 1 && (outcome_.executed % 16 == 1 || node.task->nanoseconds >= 1000);
    lock.unlock();
    std::exception_ptr failure;
    bool dead = node.always && it.states[node.local].dead;
    auto begin = timed ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
    try {
      node.task->run(inputs, node.num_inputs, outputs, node.num_outputs,
                     Place{r.node, it.key, options_.cancellation.get(), options_.state, &dead});
    } catch (...) {
      failure = std::current_exception();
    }
    if (timed) {
      // At most doubles: one run that compiled, or lost the processor, says nothing about the next.
      int64_t taken = (std::chrono::steady_clock::now() - begin).count();
      int64_t before = node.task->nanoseconds.load(std::memory_order_relaxed);
      node.task->nanoseconds.store(std::min(taken, std::max<int64_t>(2 * before, 1000)), std::memory_order_relaxed);
    }
    for (int32_t i = 0; i < node.num_inputs; ++i) inputs[i] = nullptr;
    lock.lock();
    --busy_;
    if (failure) return stop(r.node, failure);
    if (over()) return;
    if (dead) {
      send_dead(node, it);
    } else {
      for (int32_t k = 0; k < node.num_outputs; ++k) send(node.consumers[k], it, std::move(outputs[k]));
      send(node.after, it, nullptr);
    }
    finish(it);
    if (busy_ > 0 && (over() || !ready_.empty())) changed_.notify_all();
  }

  // -- delivering

  void send(const std::vector<Edge>& edges, Iteration& it, Token value) {
    size_t count = edges.size();
    for (size_t k = 0; k < count; ++k) {
      const Edge& e = edges[k];
      if (e.slot < 0)
        arrive_control(e, it, false);
      else
        arrive(e, it, k + 1 == count ? std::move(value) : Token(value), false);
    }
  }
  void send_dead(const std::vector<Edge>& edges, Iteration& it) {
    for (const Edge& e : edges)
      if (e.slot < 0)
        arrive_control(e, it, e.slot == Graph::kControl);
      else
        arrive(e, it, nullptr, true);
  }
  void send_dead(const Node& node, Iteration& it) {
    switch (node.kind) {
      case Kind::Enter:
        enter(node, static_cast<int32_t>(&node - graph_.nodes().data()), it, nullptr, true);
        return;
      case Kind::NextIteration:
      case Kind::Exit:
        return;  // see Note [Tags]
      default:
        for (const auto& edges : node.consumers) send_dead(edges, it);
        send_dead(node.after, it);
    }
  }

  void make_ready(int32_t node, Iteration& it) {
    ++it.outstanding;
    ready_.push({&it, node});
  }

  void arrive(const Edge& e, Iteration& it, Token value, bool dead) {
    const Node& node = graph_.nodes()[e.node];
    State& state = it.states[node.local];
    if (node.kind == Kind::Merge) return arrive_merge(e, node, state, it, std::move(value), dead);
    it.slots[e.slot] = std::move(value);
    state.dead |= dead;
    if (--state.pending == 0) make_ready(e.node, it);
  }

  // A Merge is ready when what orders it has happened and either one input is live or all that can come are dead.
  // Once an input was chosen its number is kept in dead_inputs, which has no other use then.
  void arrive_merge(const Edge& e, const Node& node, State& state, Iteration& it, Token value, bool dead) {
    if (state.fired) return;
    if (dead) {
      if (++state.dead_inputs < node.merge_inputs) return;
      state.dead = true;
    } else {
      it.slots[e.slot] = std::move(value);
      state.dead_inputs = e.position;
    }
    state.fired = true;
    if (state.pending == 0) make_ready(e.node, it);
  }

  void arrive_control(const Edge& e, Iteration& it, bool dead) {
    const Node& node = graph_.nodes()[e.node];
    State& state = it.states[node.local];
    state.dead |= dead;
    if (--state.pending == 0 && (node.kind != Kind::Merge || state.fired)) make_ready(e.node, it);
  }

  // -- frames

  void start(std::vector<Token>& sources) {
    root_ = make_frame(0, nullptr);
    Iteration& it = begin_iteration(*root_);
    ++it.outstanding;  // so that the run is not over while it begins
    const std::vector<Node>& nodes = graph_.nodes();
    for (size_t n = 0; n < nodes.size(); ++n) {
      const Node& node = nodes[n];
      if (node.kind == Kind::Source) {
        send(node.consumers[0], it, std::move(sources[node.target]));
        send(node.after, it, nullptr);
      } else if (node.frame == 0 && node.num_inputs + node.num_controls == 0) {
        make_ready(static_cast<int32_t>(n), it);
      }
    }
    finish(it);
  }

  std::unique_ptr<FrameRun> make_frame(int32_t id, Iteration* parent) {
    auto frame = std::make_unique<FrameRun>();
    frame->def = &graph_.frames()[id];
    frame->id = id;
    frame->parent = parent;
    frame->key = parent ? mix(parent->key, id) : 0;
    frame->enters_missing = frame->def->num_enters;
    frame->invariants.resize(frame->def->num_invariants);
    frame->exited.resize(frame->def->exits.size());
    return frame;
  }

  Iteration& begin_iteration(FrameRun& frame) {
    const Graph::Frame& def = *frame.def;
    std::unique_ptr<Iteration> made;
    auto& spare = spare_[frame.id];
    if (spare.empty()) {
      made = std::make_unique<Iteration>();
      made->slots.resize(def.num_slots);
      made->children.resize(def.num_children);
    } else {
      made = std::move(spare.back());
      spare.pop_back();
    }
    made->states = def.initial;
    made->frame = &frame;
    made->number = frame.started++;
    made->key = mix(frame.key, made->number);
    made->outstanding = 0;
    Iteration& it = *made;
    frame.active.push_back(std::move(made));
    outcome_.most_iterations = std::max(outcome_.most_iterations, static_cast<int64_t>(frame.active.size()));
    for (const auto& invariant : frame.invariants)
      if (invariant.there) deliver_invariant(invariant.node, it, invariant.value, invariant.dead);
    return it;
  }

  void deliver_invariant(int32_t node, Iteration& it, const Token& value, bool dead) {
    const Node& enter = graph_.nodes()[node];
    if (dead) {
      send_dead(enter.consumers[0], it);
      send_dead(enter.after, it);
    } else {
      send(enter.consumers[0], it, value);
      send(enter.after, it, nullptr);
    }
  }

  void enter(const Node& node, int32_t id, Iteration& it, Token value, bool dead) {
    std::unique_ptr<FrameRun>& child = it.children[graph_.frames()[node.target].child];
    if (!child) {
      child = make_frame(node.target, &it);
      ++it.outstanding;
      begin_iteration(*child);
    }
    FrameRun& frame = *child;
    Iteration& first = *frame.active.front();  // number 0: it cannot be over before every Enter has come
    ++first.outstanding;
    if (node.constant) {
      auto& invariant = frame.invariants[node.invariant];
      invariant = {true, dead, id, value};
      for (auto& active : frame.active) deliver_invariant(id, *active, value, dead);
    } else if (dead) {
      send_dead(node.consumers[0], first);
      send_dead(node.after, first);
    } else {
      send(node.consumers[0], first, std::move(value));
      send(node.after, first, nullptr);
    }
    --frame.enters_missing;
    finish(first);
  }

  void next(int32_t id, Iteration& it, Token value) {
    FrameRun& frame = *it.frame;
    if (it.number + 1 == frame.started) {
      if (static_cast<int32_t>(frame.active.size()) >= frame.def->parallel) {
        frame.deferred.emplace_back(id, std::move(value));
        return;
      }
      begin_iteration(frame);
    }
    Iteration& following = *frame.active[it.number + 1 - frame.active.front()->number];
    send(graph_.nodes()[id].consumers[0], following, std::move(value));
  }

  // One thing less under way in `it`; ends iterations and frames that are over.
  void finish(Iteration& it) {
    if (--it.outstanding > 0) return;
    FrameRun& frame = *it.frame;
    while (!frame.active.empty()) {
      Iteration& first = *frame.active.front();
      if (first.outstanding > 0 || (first.number == 0 && frame.enters_missing > 0)) return;
      std::unique_ptr<Iteration> over = std::move(frame.active.front());
      frame.active.pop_front();
      for (Token& slot : over->slots) slot = nullptr;
      spare_[frame.id].push_back(std::move(over));
      if (!frame.deferred.empty()) {
        Iteration& following = begin_iteration(frame);
        ++following.outstanding;
        auto deferred = std::move(frame.deferred);
        frame.deferred.clear();
        for (auto& [node, value] : deferred) send(graph_.nodes()[node].consumers[0], following, std::move(value));
        --following.outstanding;
      }
    }
    if (!frame.parent) {
      finished_ = true;
      changed_.notify_all();
      return;
    }
    Iteration& parent = *frame.parent;
    for (size_t k = 0; k < frame.exited.size(); ++k)
      if (!frame.exited[k]) {
        const Node& exit = graph_.nodes()[frame.def->exits[k]];
        send_dead(exit.consumers[0], parent);
        send_dead(exit.after, parent);
      }
    for (int32_t done : frame.def->dones) arrive_control({done, Graph::kControl, -1}, parent, false);
    parent.children[frame.def->child].reset();  // `frame` is gone
    finish(parent);
  }

  const Graph& graph_;
  const Options& options_;
  std::mutex mutex_;  // guards everything below, and all iterations and frames
  std::condition_variable changed_;
  ReadyQueue ready_;
  int busy_ = 0;       // tasks running, and helpers at work
  int computing_ = 0;  // helpers that compute
  bool finished_ = false, stopping_ = false;
  std::unique_ptr<FrameRun> root_;
  std::vector<std::vector<std::unique_ptr<Iteration>>> spare_;
  Outcome outcome_;
};

}  // namespace

Outcome run(const Graph& graph, std::vector<Token> sources, const Options& options) {
  TD_CHECK(static_cast<int32_t>(sources.size()) == graph.num_sources());
  return std::make_shared<Run>(graph, options)->run(std::move(sources));
}

}  // namespace tandem::flow
