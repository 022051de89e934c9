#include "collectives/call.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <sstream>

namespace tandem::collectives {

const char* name_of(Kind kind) {
  static constexpr const char* names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
                                          "all_to_all", "barrier",    "send",           "recv",      "program"};
  return names[static_cast<uint32_t>(kind)];
}

const char* name_of(Reduction reduction) {
  static constexpr const char* names[] = {"sum", "avg", "product", "min", "max", "band", "bor", "bxor"};
  return names[static_cast<uint32_t>(reduction)];
}

// Whether its tag says which tensors it is of: messages and programs have other tags.
static bool has_identity(const Call& call) {
  return call.tag && call.kind <= static_cast<uint32_t>(Kind::Broadcast);
}

std::string describe(const Call& call) {
  const auto kind = static_cast<Kind>(call.kind);
  std::ostringstream text;
  text << name_of(kind);
  if (kind == Kind::AllReduce || kind == Kind::ReduceScatter || kind == Kind::Reduce)
    text << '(' << name_of(static_cast<Reduction>(call.reduction)) << ')';
  if (kind == Kind::Program) text << " with " << call.in_count << (call.in_count == 1 ? " collective" : " collectives");
  if (kind != Kind::Barrier && kind != Kind::Program) {
    text << " of " << name(static_cast<DType>(call.dtype)) << " (";
    for (int i = 0; i < std::min(call.ndim, 8); ++i) text << (i ? ", " : "") << call.shape[i];
    text << (call.ndim == 1 ? ",)" : ")");
  }
  if (has_identity(call) && call.tag < kUnnamed) {
    if (call.tag >= kModel)
      text << " and others, the parameters and buffers of a model";
    else if (call.tag >= kSomeUsed)
      text << " and others, of the parameters that this rank used";
    else
      text << ", parameter " << call.tag << " of those that fully_shard divided";
  }
  if (call.on_device) text << " on cuda";
  if (kind == Kind::Broadcast) text << " from rank " << call.root;
  if (kind == Kind::Reduce || kind == Kind::Send) text << " to rank " << call.root;
  if (kind == Kind::Receive) text << " from rank " << call.root;
  if (call.line[0]) text << " at " << call.line;
  return text.str();
}

void describe(const Request& request, Call& to) {
  to.kind = static_cast<uint32_t>(request.kind);
  to.reduction = static_cast<uint32_t>(request.reduction);
  to.dtype = static_cast<uint32_t>(request.dtype);
  to.root = request.root;
  to.tag = request.tag;
  to.on_device = request.on_device;
  to.ndim = request.ndim;
  std::copy(std::begin(request.shape), std::end(request.shape), to.shape);
  to.in_count = to.out_count = 0;
  for (const Piece& piece : request.pieces) {
    to.in_count += piece.in_count;
    to.out_count += piece.out_count;
  }
  const size_t n = std::min<size_t>(kLine - 1, request.line.size());
  std::memcpy(to.line, request.line.data(), n);
  to.line[n] = 0;
}

static bool same_shape(const Call& a, const Call& b, int first) {
  return a.ndim == b.ndim && std::equal(a.shape + std::min(first, a.ndim), a.shape + std::min(a.ndim, 8),
                                        b.shape + std::min(first, b.ndim));
}

bool fits(const Call& a, const Call& b, bool uneven) {
  if (a.kind != b.kind || a.dtype != b.dtype || a.reduction != b.reduction || a.root != b.root ||
      a.on_device != b.on_device || a.tag != b.tag)
    return false;
  const auto kind = static_cast<Kind>(a.kind);
  if (kind == Kind::AllGather || kind == Kind::AllToAll) return same_shape(a, b, uneven ? 1 : 0);
  return same_shape(a, b, 0) && a.in_count == b.in_count;
}

std::string disagreement(const std::vector<const Call*>& calls, const std::vector<int>& names, int64_t number) {
  std::map<std::string, std::vector<int>> asked;
  bool tags_differ = false;
  int64_t largest = 0;
  for (size_t r = 0; r < calls.size(); ++r) {
    asked[describe(*calls[r])].push_back(names[r]);
    if (calls[r]->kind != calls[0]->kind || !(has_identity(*calls[r]) || has_identity(*calls[0]))) continue;
    tags_differ |= calls[r]->tag != calls[0]->tag;
    largest = std::max({largest, calls[r]->tag, calls[0]->tag});
  }
  tags_differ &= largest < kUnnamed;
  std::map<int, std::string> lines;
  for (const auto& [text, ranks] : asked) {
    std::ostringstream line;
    line << "\n  rank" << (ranks.size() > 1 ? "s " : " ");
    for (size_t i = 0; i < ranks.size(); ++i) line << (i ? ", " : "") << ranks[i];
    line << ": " << text;
    lines[ranks[0]] = line.str();
  }
  std::ostringstream text;
  text << "ranks do not agree on collective number " << number << ':';
  for (const auto& [rank, line] : lines) text << line;
  if (tags_differ && largest >= kModel)
    text << "\n  their models have other parameters, or the same ones in another order\n  fix: make the same model on "
            "every rank";
  else if (tags_differ && largest >= kSomeUsed)
    text << "\n  they have gradients of different parameters\n  fix: use data_parallel(model, "
            "find_unused_parameters=True)";
  else if (tags_differ)
    text << "\n  they use different layers here\n  fix: use the layers of a fully sharded model in the same order on "
            "every rank";
  else
    text << "\n  fix: call the same collectives in the same order, with the same types and sizes, on every rank";
  return text.str();
}

std::string mistaken_message(const Call& sent, int sender, const Call& expected, int receiver) {
  const auto line = [&](const Call& call, int rank) {
    std::string text = "\n  rank " + std::to_string(rank) + ": " + describe(call);
    return sent.tag == expected.tag ? text : text + " with tag " + std::to_string(call.tag);
  };
  return "a message is not what is expected:" + line(sent, sender) + line(expected, receiver) +
         "\n  fix: give both the same dtype, shape and tag";
}

}  // namespace tandem::collectives
