// The collectives of ranks on several hosts, of exchanges of bytes; see Note [Over hosts].
#include <algorithm>
#include <cstring>
#include <numeric>

#include "check.h"
#include "collectives/hosts_member.h"
#include "collectives/hosts_outline.h"
#include "collectives/parts.h"
#include "collectives/reduce.h"

namespace tandem::collectives {
namespace {

constexpr int64_t kWindow = int64_t{4} << 20;  // bytes that pass through memory of this rank at once
constexpr int kHeaderTag = 1, kBodyTag = 2;

int64_t item_of(const Request& request) {
  return static_cast<int64_t>(item_size(request.dtype));
}

std::vector<int64_t> offsets(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> at(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), at.begin(), int64_t{0});
  return at;
}

std::vector<int64_t> times(std::vector<int64_t> numbers, int64_t factor) {
  for (int64_t& n : numbers) n *= factor;
  return numbers;
}

bool overlap(const Piece& piece, int64_t item) {
  return piece.in < piece.out + piece.out_count * item && piece.out < piece.in + piece.in_count * item;
}

}  // namespace

void HostsMember::gather(const char* in, int64_t bytes, char* out, const std::vector<int64_t>& each, const Call& call) {
  wait(*network_->gather(in, bytes, out, each), call, true);
}

void HostsMember::exchange(const char* in, const std::vector<int64_t>& sends, const std::vector<int64_t>& sends_at,
                           char* out, const std::vector<int64_t>& takes, const Call& call) {
  wait(*network_->exchange(in, sends, sends_at, out, takes), call, true);
}

void HostsMember::collect(const Request& request, const Call& call) {
  const std::vector<Outline> all = hold_meeting(request, call, 0);
  const int64_t item = item_of(request);
  const bool is_inline = request.kind != Kind::AllToAll && std::all_of(all.begin(), all.end(), [&](const Outline& o) {
                           return o.call.in_count * item <= kInline;
                         });
  if (is_inline && request.kind != Kind::Barrier) return take_inline(request, all);
  switch (request.kind) {
    case Kind::AllReduce:
      return all_reduce(request, call);
    case Kind::ReduceScatter:
      return reduce_scatter(request, call);
    case Kind::Reduce:
      return reduce_to_root(request, call);
    case Kind::AllGather:
      return all_gather(request, call);
    case Kind::AllToAll:
      return all_to_all(request, call);
    case Kind::Broadcast:
      return broadcast(request, call);
    default:
      return;
  }
}

// Operands that came with the meeting.
void HostsMember::take_inline(const Request& request, const std::vector<Outline>& all) {
  const int64_t item = item_of(request);
  const Piece& only = request.pieces[0];
  std::vector<const char*> in(size());
  const auto reduce_from = [&](int64_t first, int64_t count, char* out) {
    for (int r = 0; r < size(); ++r) in[r] = all[r].payload + first * item;
    reduce(in.data(), size(), &out, 1, count, request.dtype, request.reduction);
  };
  int64_t at = 0;
  switch (request.kind) {
    case Kind::AllReduce:
    case Kind::Broadcast:
      for (const Piece& piece : request.pieces) {
        if (request.kind == Kind::AllReduce)
          reduce_from(at, piece.in_count, piece.out);
        else
          std::memcpy(piece.out, all[request.root].payload + at * item, piece.in_count * item);
        at += piece.in_count;
      }
      break;
    case Kind::ReduceScatter:
      for (int r = 0; r < rank_; ++r) at += request.takes.empty() ? only.out_count : request.takes[r];
      reduce_from(at, only.out_count, only.out);
      break;
    case Kind::Reduce:
      if (rank_ == request.root)
        reduce_from(0, only.out_count, only.out);
      else
        std::memset(only.out, 0, only.out_count * item);
      break;
    default:  // AllGather
      for (const Outline& other : all) {
        std::memcpy(only.out + at * item, other.payload, other.call.in_count * item);
        at += other.call.in_count;
      }
  }
}

// parts_: `count` elements of every rank, one after the other.
void HostsMember::reduce_parts(const Request& request, int64_t count, char* out) {
  std::vector<const char*> in(size());
  for (int r = 0; r < size(); ++r) in[r] = parts_.data() + r * count * item_of(request);
  reduce(in.data(), size(), &out, 1, count, request.dtype, request.reduction);
}

// A window at a time: every rank gets its share of all ranks' elements, reduces it, and gives it to all.
void HostsMember::all_reduce(const Request& request, const Call& call) {
  const int64_t item = item_of(request), window = kWindow / item;
  const bool whole = request.pieces.size() == 1;  // lies together already
  for (int64_t begin = 0; begin < call.in_count; begin += window) {
    const int64_t count = std::min(window, call.in_count - begin);
    std::vector<int64_t> sizes(size());
    for (int r = 0; r < size(); ++r) {
      const auto [first, last] = share(count, r, size());
      sizes[r] = (last - first) * item;
    }
    const int64_t mine = sizes[rank_];
    parts_.resize(std::max<size_t>(parts_.size(), mine * size()));
    reduced_.resize(std::max<size_t>(reduced_.size(), mine));
    packed_.resize(std::max<size_t>(packed_.size(), whole ? 0 : count * item));
    const char* in = whole ? request.pieces[0].in + begin * item : packed_.data();
    char* out = whole ? request.pieces[0].out + begin * item : packed_.data();
    if (!whole)
      for_range(request.pieces, begin, count, [&](size_t i, int64_t first, int64_t n, int64_t done) {
        std::memcpy(packed_.data() + done * item, request.pieces[i].in + first * item, n * item);
      });
    exchange(in, sizes, offsets(sizes), parts_.data(), std::vector<int64_t>(size(), mine), call);
    reduce_parts(request, mine / item, reduced_.data());
    gather(reduced_.data(), mine, out, sizes, call);
    if (!whole)
      for_range(request.pieces, begin, count, [&](size_t i, int64_t first, int64_t n, int64_t done) {
        std::memcpy(request.pieces[i].out + first * item, packed_.data() + done * item, n * item);
      });
  }
}

void HostsMember::reduce_scatter(const Request& request, const Call& call) {
  const int64_t item = item_of(request);
  const Piece& piece = request.pieces[0];
  const std::vector<int64_t> rows =
      request.takes.empty() ? std::vector<int64_t>(size(), call.in_count / size()) : request.takes;
  const std::vector<int64_t> at = offsets(rows);
  const int64_t most = *std::max_element(rows.begin(), rows.end());
  const int64_t window = std::max<int64_t>(1, kWindow / item / size());
  for (int64_t begin = 0; begin < most; begin += window) {
    std::vector<int64_t> sends(size()), sends_at(size());
    for (int r = 0; r < size(); ++r) {
      sends[r] = std::clamp<int64_t>(rows[r] - begin, 0, window) * item;
      sends_at[r] = std::min(at[r] + begin, call.in_count) * item;
    }
    const int64_t mine = sends[rank_];
    parts_.resize(std::max<size_t>(parts_.size(), mine * size()));
    reduced_.resize(std::max<size_t>(reduced_.size(), mine));
    exchange(piece.in, sends, sends_at, parts_.data(), std::vector<int64_t>(size(), mine), call);
    if (!mine) continue;
    // Not at once to the result, which may lie where later windows are sent from.
    reduce_parts(request, mine / item, reduced_.data());
    results_.insert(results_.end(), reduced_.data(), reduced_.data() + mine);
  }
  std::memcpy(piece.out, results_.data(), results_.size());
  results_.clear();
}

void HostsMember::reduce_to_root(const Request& request, const Call& call) {
  const int64_t item = item_of(request), window = std::max<int64_t>(1, kWindow / item / size());
  const Piece& piece = request.pieces[0];
  const bool is_root = rank_ == request.root;
  for (int64_t begin = 0; begin < call.in_count; begin += window) {
    const int64_t count = std::min(window, call.in_count - begin);
    std::vector<int64_t> sends(size(), 0), takes(size(), is_root ? count * item : 0);
    sends[request.root] = count * item;
    if (is_root) parts_.resize(std::max<size_t>(parts_.size(), count * item * size()));
    exchange(piece.in + begin * item, sends, std::vector<int64_t>(size(), 0), parts_.data(), takes, call);
    if (is_root) reduce_parts(request, count, piece.out + begin * item);
  }
  if (!is_root) std::memset(piece.out, 0, piece.out_count * item);
}

void HostsMember::all_gather(const Request& request, const Call& call) {
  const int64_t item = item_of(request);
  const Piece& piece = request.pieces[0];
  const std::vector<int64_t> rows = request.takes.empty() ? std::vector<int64_t>(size(), call.in_count) : request.takes;
  const char* in = piece.in;
  if (overlap(piece, item)) {
    packed_.assign(piece.in, piece.in + piece.in_count * item);
    in = packed_.data();
  }
  gather(in, piece.in_count * item, piece.out, times(rows, item), call);
}

void HostsMember::all_to_all(const Request& request, const Call& call) {
  const int64_t item = item_of(request);
  const Piece& piece = request.pieces[0];
  const bool even = request.sends.empty();
  const std::vector<int64_t> sends = even ? std::vector<int64_t>(size(), call.in_count / size()) : request.sends;
  const std::vector<int64_t> takes = request.takes.empty() ? sends : request.takes;
  if (!even) compare_exchange(request, sends, takes, call);
  const char* in = piece.in;
  if (overlap(piece, item)) {
    packed_.assign(piece.in, piece.in + piece.in_count * item);
    in = packed_.data();
  }
  exchange(in, times(sends, item), times(offsets(sends), item), piece.out, times(takes, item), call);
}

// Whether what ranks send is what the others take: each pair knows, and then all do.
void HostsMember::compare_exchange(const Request& request, const std::vector<int64_t>& sends,
                                   const std::vector<int64_t>& takes, const Call& call) {
  const std::vector<int64_t> word(size(), sizeof(int64_t));
  std::vector<int64_t> theirs(size());
  exchange(reinterpret_cast<const char*>(sends.data()), word, offsets(word), reinterpret_cast<char*>(theirs.data()),
           word, call);
  const std::vector<Outline> all = hold_meeting(request, call, theirs == takes);
  if (std::all_of(all.begin(), all.end(), [](const Outline& o) { return o.word; })) return;
  std::vector<const Call*> calls;
  for (const Outline& other : all) calls.push_back(&other.call);
  fail(ErrorKind::Distributed, "ranks send other sizes than are taken; ", disagreement(calls, ranks_, entered()));
}

void HostsMember::broadcast(const Request& request, const Call& call) {
  const int64_t item = item_of(request);
  for (const Piece& piece : request.pieces) {
    if (rank_ == request.root && piece.in != piece.out) std::memcpy(piece.out, piece.in, piece.in_count * item);
    wait(*network_->broadcast(piece.out, piece.in_count * item, request.root), call, true);
  }
}

void HostsMember::send(const Request& request, const Call& call) {
  const Piece& piece = request.pieces[0];
  const int64_t bytes = piece.in_count * item_of(request);
  const auto header = network_->send(reinterpret_cast<const char*>(&call), sizeof call, request.root, kHeaderTag);
  const auto body = request.on_device ? nullptr : network_->send(piece.in, bytes, request.root, kBodyTag);
  wait(*header, call, false);
  if (!body) return;  // what it is, alone: the elements follow on the device
  wait(*body, call, false);
  if (piece.out) std::memset(piece.out, 0, piece.out_count * item_size(request.dtype));  // the zero of functional.send
}

void HostsMember::receive(const Request& request, const Call& call) {
  const Piece& piece = request.pieces[0];
  const auto get = [&](void* to, int64_t bytes, int tag, bool moving) {
    wait(*network_->receive(static_cast<char*>(to), bytes, request.root, tag), call, moving);
  };
  Call theirs;
  get(&theirs, sizeof theirs, kHeaderTag, false);
  const bool right = call.dtype == theirs.dtype && call.out_count == theirs.in_count && call.tag == theirs.tag &&
                     call.ndim == theirs.ndim && call.on_device == theirs.on_device &&
                     std::equal(call.shape, call.shape + std::min(call.ndim, 8), theirs.shape);
  const int64_t bytes = theirs.in_count * static_cast<int64_t>(item_size(static_cast<DType>(theirs.dtype)));
  if (right) return theirs.on_device ? void() : get(piece.out, bytes, kBodyTag, true);
  std::vector<char> other(bytes);  // the message is taken, so that the next one may come
  if (!theirs.on_device) get(other.data(), bytes, kBodyTag, true);
  fail(ErrorKind::Distributed, mistaken_message(theirs, ranks_[request.root], call, ranks_[rank_]));
}

}  // namespace tandem::collectives
