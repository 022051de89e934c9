#include <algorithm>
#include <string>

#include "check.h"
#include "executor/flow.h"

namespace tandem::flow {

namespace {

constexpr int32_t kUnknown = -1;

// The frame that a node's results belong to.
int32_t result_frame(const NodeSpec& spec, int32_t frame, const std::vector<int32_t>& parents) {
  if (spec.kind == Kind::Enter) return spec.frame;
  if (spec.kind == Kind::Exit) return parents[frame];
  return frame;
}

void check_ports(const std::vector<NodeSpec>& specs, int32_t num_frames) {
  auto count = static_cast<int32_t>(specs.size());
  for (int32_t n = 0; n < count; ++n) {
    const NodeSpec& spec = specs[n];
    auto number = static_cast<int32_t>(spec.inputs.size());
    for (const Port& p : spec.inputs)
      if (p.node < 0 || p.node >= count || p.output < 0 || p.output >= specs[p.node].num_outputs)
        fail(ErrorKind::Value, "node ", n, " takes an output that is not there");
    for (const std::vector<int32_t>* list : {&spec.controls, &spec.orders})
      for (int32_t c : *list)
        if (c < 0 || c >= count) fail(ErrorKind::Value, "node ", n, " waits for a node that is not there");
    if ((spec.kind == Kind::Enter || spec.kind == Kind::Done) && (spec.frame <= 0 || spec.frame >= num_frames))
      fail(ErrorKind::Value, "node ", n, " names a frame that is not there");
    auto expect = [&](int32_t inputs, int32_t outputs) {
      if (number != inputs || spec.num_outputs != outputs)
        fail(ErrorKind::Value, "node ", n, " has ", number, " inputs and ", spec.num_outputs, " outputs; it must have ",
             inputs, " and ", outputs);
    };
    switch (spec.kind) {
      case Kind::Source:
        expect(0, 1);
        break;
      case Kind::Compute:
        if (!spec.task && (number || spec.num_outputs)) fail(ErrorKind::Value, "node ", n, " has no task");
        break;
      case Kind::Switch:
        expect(2, 2);
        break;
      case Kind::Merge:
        expect(std::max(number, 1), 2);
        break;
      case Kind::Enter:
      case Kind::Exit:
      case Kind::NextIteration:
      case Kind::LoopCond:
        expect(1, 1);
        break;
      case Kind::Done:
        expect(0, 0);
        break;
      case Kind::Fetch:
        expect(1, 0);
        break;
    }
  }
}

// The frame of every node, from those of its inputs.
std::vector<int32_t> find_frames(const std::vector<NodeSpec>& specs, std::vector<int32_t>& parents) {
  size_t count = specs.size();
  std::vector<int32_t> frame(count, kUnknown);
  std::vector<std::vector<int32_t>> consumers(count);
  std::vector<int32_t> stack;
  auto settle = [&](int32_t node, int32_t value) {
    if (frame[node] == kUnknown) {
      frame[node] = value;
      stack.push_back(node);
    } else if (frame[node] != value) {
      fail(ErrorKind::Value, "node ", node, " takes values of two frames");
    }
  };
  for (size_t n = 0; n < count; ++n) {
    for (const Port& p : specs[n].inputs) consumers[p.node].push_back(static_cast<int32_t>(n));
    for (int32_t c : specs[n].controls) consumers[c].push_back(static_cast<int32_t>(n));
    for (int32_t c : specs[n].orders) consumers[c].push_back(static_cast<int32_t>(n));
    if (specs[n].inputs.empty() && specs[n].controls.empty() && specs[n].orders.empty() && specs[n].kind != Kind::Done)
      settle(static_cast<int32_t>(n), 0);
  }
  auto propagate = [&] {
    while (!stack.empty()) {
      int32_t node = stack.back();
      stack.pop_back();
      const NodeSpec& spec = specs[node];
      if (spec.kind == Kind::Enter) {
        if (parents[spec.frame] == kUnknown) parents[spec.frame] = frame[node];
        if (parents[spec.frame] != frame[node] || spec.frame == frame[node])
          fail(ErrorKind::Value, "node ", node, " enters a frame that is entered from elsewhere too");
      }
      if ((spec.kind == Kind::Exit || spec.kind == Kind::NextIteration || spec.kind == Kind::LoopCond) &&
          frame[node] == 0)
        fail(ErrorKind::Value, "node ", node, " belongs to a loop but stands outside of every frame");
      int32_t out = result_frame(spec, frame[node], parents);
      for (int32_t next : consumers[node]) settle(next, out);
    }
  };
  propagate();
  for (size_t n = 0; n < count; ++n)
    if (specs[n].kind == Kind::Done) {
      if (parents[specs[n].frame] == kUnknown) fail(ErrorKind::Value, "node ", n, " waits for a frame without Enter");
      settle(static_cast<int32_t>(n), parents[specs[n].frame]);
      propagate();
    }
  for (size_t n = 0; n < count; ++n)
    if (frame[n] == kUnknown) fail(ErrorKind::Value, "node ", n, " can never run: nothing reaches it");
  return frame;
}

}  // namespace

Graph::Graph(std::vector<NodeSpec> specs, int32_t num_frames) {
  TD_CHECK(num_frames >= 1);
  check_ports(specs, num_frames);
  std::vector<int32_t> parents(num_frames, kUnknown);
  std::vector<int32_t> frame = find_frames(specs, parents);
  frames_.resize(num_frames);
  nodes_.resize(specs.size());
  for (int32_t f = 1; f < num_frames; ++f) {
    if (parents[f] == kUnknown) continue;  // of another part of the graph; see Note [Dead values between tasks]
    frames_[f].parent = parents[f];
    frames_[f].child = frames_[parents[f]].num_children++;
  }
  for (int32_t f = 1; f < num_frames; ++f)  // parents that lead nowhere would never finish
    for (int32_t up = f, steps = 0; up > 0; up = parents[up])
      if (++steps > num_frames) fail(ErrorKind::Value, "frame ", f, " is inside of itself");
  for (size_t n = 0; n < specs.size(); ++n) {
    NodeSpec& spec = specs[n];
    Node& node = nodes_[n];
    Frame& home = frames_[frame[n]];
    node.kind = spec.kind;
    node.task = std::move(spec.task);
    node.always = spec.always;
    node.frame = frame[n];
    node.local = home.num_nodes++;
    node.num_inputs = static_cast<int32_t>(spec.inputs.size());
    node.num_outputs = spec.num_outputs;
    node.num_controls = static_cast<int32_t>(spec.controls.size() + spec.orders.size()) + (spec.kind == Kind::Done);
    node.first_slot = home.num_slots;
    home.num_slots += node.num_inputs;
    node.consumers.resize(spec.num_outputs);
    if (node.frame != 0 && node.num_inputs + node.num_controls == 0)
      fail(ErrorKind::Value, "node ", n, " has no inputs inside a loop");
    switch (spec.kind) {
      case Kind::Enter: {
        Frame& entered = frames_[spec.frame];
        node.target = spec.frame;
        node.constant = spec.constant;
        if (spec.constant) node.invariant = entered.num_invariants++;
        ++entered.num_enters;
        entered.parallel = std::max(spec.parallel, 1);
        break;
      }
      case Kind::Exit:
        node.target = static_cast<int32_t>(home.exits.size());
        home.exits.push_back(static_cast<int32_t>(n));
        break;
      case Kind::Done:
        node.target = spec.frame;
        frames_[spec.frame].dones.push_back(static_cast<int32_t>(n));
        break;
      case Kind::Source:
        node.target = num_sources_++;
        break;
      case Kind::Fetch:
        if (node.frame != 0) fail(ErrorKind::Value, "node ", n, ": a value inside a loop cannot be fetched");
        node.target = num_fetches_++;
        break;
      default:
        break;
    }
    node.merge_inputs = node.num_inputs;
    if (spec.kind == Kind::Merge)
      for (const Port& p : spec.inputs)
        if (specs[p.node].kind == Kind::NextIteration) {
          node.loop_merge = true;
          --node.merge_inputs;
        }
    Initial initial{};
    initial.pending = spec.kind == Kind::Merge ? node.num_controls : node.num_inputs + node.num_controls;
    home.initial.push_back(initial);
  }
  for (size_t n = 0; n < specs.size(); ++n) {
    auto id = static_cast<int32_t>(n);
    for (int32_t i = 0; i < nodes_[n].num_inputs; ++i) {
      const Port& p = specs[n].inputs[i];
      nodes_[p.node].consumers[p.output].push_back({id, nodes_[n].first_slot + i, i});
    }
    for (int32_t c : specs[n].controls) nodes_[c].after.push_back({id, kControl, -1});
    for (int32_t c : specs[n].orders) nodes_[c].after.push_back({id, kOrder, -1});
  }
}

}  // namespace tandem::flow
