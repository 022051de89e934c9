// The collectives of ranks that share memory.
//
// Note [Direct and staged]
// Where every rank's operands and results lie in memory that the others can look at (Note [Shared heap], or ranks that
// are threads) and are large, ranks read and write them where they are: an all-reduce is one pass over memory, each
// rank reducing its part of the elements and writing it to all. Otherwise operands pass through stages, a window at a
// time. Of the tensors of an all-reduce some go the one way and some the other: small ones never lie in the heap, and
// the gradients of a model are a few large ones and many small. Ranks decide by what all of them published, so they
// decide alike.
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <ranges>

#include "check.h"
#include "collectives/member.h"
#include "collectives/parts.h"
#include "collectives/reduce.h"
#include "memory/shared_heap.h"

namespace tandem::collectives {
namespace {

constexpr int64_t kDirectBytes = int64_t{64} << 10;  // below, a copy costs less than a second meeting
constexpr int64_t kOwnPiece = 4096;                  // elements; pieces below are one rank's work
constexpr int64_t kRedundant = int64_t{16} << 10;    // bytes that every rank reduces for itself

int64_t item_of(const Request& request) {
  return static_cast<int64_t>(item_size(request.dtype));
}

// Where rank r's part begins in elements that are laid out by these sizes, or equally.
int64_t offset_in(const int64_t* sizes, bool uneven, int64_t each, int rank) {
  return uneven ? std::accumulate(sizes, sizes + rank, int64_t{0}) : each * rank;
}

// Whether what two ranks were asked for fits together.
bool fits(const Descriptor& a, int rank_a, const Descriptor& b, int rank_b) {
  if (!fits(a.call, b.call, a.uneven) || a.num_pieces != b.num_pieces || a.uneven != b.uneven) return false;
  for (int i = 0; i < a.num_pieces && a.num_pieces > 1; ++i)
    if (a.pieces[i].in_count != b.pieces[i].in_count) return false;
  if (!a.uneven) return true;
  switch (static_cast<Kind>(a.call.kind)) {
    case Kind::AllGather:
      return a.takes[rank_b] == b.call.in_count && b.takes[rank_a] == a.call.in_count;
    case Kind::AllToAll:
      return a.sends[rank_b] == b.takes[rank_a] && b.sends[rank_a] == a.takes[rank_b];
    default:
      return true;
  }
}

// By sizes alone, in which ranks agree.
bool is_small(const Descriptor& d) {
  const auto item = static_cast<int64_t>(item_size(static_cast<DType>(d.call.dtype)));
  return (d.call.in_count + d.call.out_count) * item < kDirectBytes;
}

}  // namespace

void describe(const Request& request, bool threads, Descriptor& to) {
  Call& call = to.call;
  describe(request, call);
  to.num_pieces = static_cast<int32_t>(request.pieces.size());
  const int64_t item = item_of(request);
  const auto place = [&](const char* data, int64_t count) {
    if (request.on_device) return Address{};
    if (threads || count == 0) return Address{reinterpret_cast<int64_t>(data)};
    const Address found{data ? heap::offset_of(data, count * item) : -1};
    if (data && !found.known() && count * item >= kDirectBytes / 2) heap::want(count * item);
    return found;
  };
  for (size_t i = 0; i < request.pieces.size(); ++i) {
    const Piece& piece = request.pieces[i];
    auto& described = to.pieces[i];
    described = {
        place(piece.in, piece.in_count), place(piece.out, piece.out_count), piece.in_count, piece.out_count, {}, {}};
  }
  to.addressable = !is_small(to);
  to.uneven = !request.sends.empty() || !request.takes.empty();
  std::copy(request.sends.begin(), request.sends.end(), to.sends);
  std::copy(request.takes.begin(), request.takes.end(), to.takes);
}

void Member::run(const Request& request) {
  TD_CHECK(request.pieces.size() <= kMostPieces && request.sends.size() <= kMostRanks &&
           request.takes.size() <= kMostRanks);
  if (left_) fail(ErrorKind::Distributed, "this group of ranks was destroyed\n  fix: call init_process_group again");
  if (request.kind == Kind::Send) return send(request);
  if (request.kind == Kind::Receive) return receive(request);
  std::lock_guard guard(mutex_);
  collect(request);
}

std::pair<Descriptor&, Entry&> Member::begin(const Request& request) {
  Descriptor& descriptor = board_->slot(rank_).descriptors[++operations_ & 1];
  describe(request, !board_->shared(), descriptor);
  if (request.num_updates) describe_updates(request, descriptor);
  copies_.clear();
  if (request.num_factors) describe_products(request, descriptor);
  descriptor.core = sched_getcpu();
  Entry& entry = note(descriptor.call);
  if (board_->header().first_failed.load()) tell_failure(descriptor.call);
  return {descriptor, entry};
}

std::vector<int64_t> Member::meet(const Request& request, int64_t word) {
  std::lock_guard guard(mutex_);
  return hold_meeting(request, word);
}

std::vector<int64_t> Member::hold_meeting(const Request& request, int64_t word) {
  auto [descriptor_here, entry] = begin(request);
  descriptor_here.word = word;
  arrive();
  compare();
  spread();
  std::vector<int64_t> words;
  for (int r = 0; r < size_; ++r) words.push_back(descriptor(r).word);
  entry.done.store(true);
  return words;
}

void Member::collect(const Request& request) {
  auto [descriptor, entry] = begin(request);
  descriptor.addressable &= can_look_at_all_;
  const bool small = is_small(descriptor) && (request.kind == Kind::AllReduce || request.kind == Kind::Broadcast);
  if (small) {  // goes to the stage at once, so that one meeting does
    put_on_stage(request, 0, descriptor.call.in_count);
    ++publications_;
  }
  arrive();
  compare();
  spread();
  switch (request.kind) {
    case Kind::AllReduce:
      all_reduce(request);
      break;
    case Kind::Broadcast:
      broadcast(request);
      break;
    case Kind::Barrier:
      break;
    default:
      exchange(request);
  }
  entry.done.store(true);
}

void Member::compare() {
  std::vector<int> all(size_);
  std::iota(all.begin(), all.end(), 0);
  const std::vector<const Call*> calls = compare(all);
  orders_.compare(calls, names_, board_->slot(rank_).entered.load(), rank_ == 0);
}

std::vector<const Call*> Member::compare(const std::vector<int>& ranks) const {
  bool agree = true;
  for (const int a : ranks)
    for (const int b : ranks) agree &= b <= a || fits(descriptor(a), a, descriptor(b), b);
  std::vector<const Call*> calls;
  std::vector<int> names;
  for (const int r : ranks) calls.push_back(&descriptor(r).call), names.push_back(names_[r]);
  if (!agree) fail(ErrorKind::Distributed, disagreement(calls, names, board_->slot(rank_).entered.load()));
  return calls;
}

// Note [Cores of ranks]
// The kernel may leave two processes on one core for seconds although another one idles, above all after they were
// forked or have woken one another; both are half as fast then, and all ranks wait for them. So ranks tell one another
// where they run, and one that finds another of a lower number on its core moves to a core without a rank. It may be
// scheduled anywhere again after that. Where there are more ranks than cores it stays as it is.
void Member::spread() const {
  const int core = descriptor(rank_).core;
  const auto others = std::views::iota(0, rank_);
  if (!board_->shared() || core < 0 || std::ranges::none_of(others, [&](int r) { return descriptor(r).core == core; }))
    return;
  cpu_set_t all, free;
  if (sched_getaffinity(0, sizeof all, &all) || CPU_COUNT(&all) < size_) return;
  free = all;
  for (int r = 0; r < size_; ++r)
    if (const int its = descriptor(r).core; its >= 0 && its < CPU_SETSIZE) CPU_CLR(its, &free);
  if (CPU_COUNT(&free) == 0 || sched_setaffinity(0, sizeof free, &free)) return;
  sched_setaffinity(0, sizeof all, &all);
}

bool Member::is_direct(int piece) const {
  for (int r = 0; r < size_; ++r) {
    const Descriptor& d = descriptor(r);
    if (!d.addressable || !d.pieces[piece].in.known() || !d.pieces[piece].out.known()) return false;
  }
  return true;
}

bool Member::is_direct() const {
  for (int i = 0; i < descriptor(rank_).num_pieces; ++i)
    if (!is_direct(i)) return false;
  return true;
}

char* Member::at(int rank, Address address) const {
  if (!board_->shared()) return reinterpret_cast<char*>(address.offset);
  return (rank == rank_ ? heap::base() : peers_[rank].heap) + address.offset;
}

const char* Member::source(int rank, int piece) const {
  return at(rank, descriptor(rank).pieces[piece].in);
}

char* Member::target(int rank, int piece) const {
  return at(rank, descriptor(rank).pieces[piece].out);
}

// This rank's elements [begin, begin + count), for the publication that comes next.
void Member::put_on_stage(const Request& request, int64_t begin, int64_t count) {
  const int64_t item = item_of(request);
  char* to = board_->stage(rank_, publications_ + 1);
  for_range(request.pieces, begin, count, [&](size_t i, int64_t first, int64_t n, int64_t done) {
    std::memcpy(to + done * item, request.pieces[i].in + first * item, n * item);
  });
}

void Member::publish() {
  ++publications_;
  arrive();
}

void Member::all_reduce(const Request& request) {
  const int64_t window = kStage / item_of(request);
  if (is_small(descriptor(rank_))) return reduce_window(request, 0, descriptor(rank_).call.in_count);
  if (multiply_others(request)) arrive();
  std::vector<int> direct, products;
  std::vector<const library::Update*> joined;
  Request staged{request.kind, request.reduction, request.dtype};
  int64_t count = 0;
  for (size_t i = 0; i < request.pieces.size(); ++i) {
    if (is_joined(static_cast<int>(i))) {
      joined.push_back(std::find_if(request.updates, request.updates + request.num_updates,
                                    [&](const library::Update& u) { return u.piece == static_cast<int>(i); }));
    } else if (is_shared_product(static_cast<int>(i))) {
      products.push_back(static_cast<int>(i));
    } else if (is_direct(static_cast<int>(i))) {
      direct.push_back(static_cast<int>(i));
    } else {
      staged.pieces.push_back(request.pieces[i]);
      count += request.pieces[i].in_count;
    }
  }
  int64_t begin = 0;
  for (; begin + window < count; begin += window) {
    put_on_stage(staged, begin, window);
    publish();
    reduce_window(staged, begin, window);
  }
  // What is left of the stages' has one meeting with all others.
  if (begin < count) put_on_stage(staged, begin, count - begin);
  for (const library::Update* update : joined) run_update(request, *update);
  for (const int piece : products) reduce_product(request, piece);
  if (!direct.empty()) reduce_directly(request, direct);
  if (begin < count)
    publish();
  else if (!direct.empty() || !joined.empty() || !products.empty())
    arrive();
  if (begin < count) reduce_window(staged, begin, count - begin);
}

void Member::reduce_directly(const Request& request, const std::vector<int>& which) {
  const int64_t item = item_of(request);
  std::vector<const char*> in(size_);
  std::vector<char*> out(size_);
  for (const int i : which) {
    const int64_t count = request.pieces[i].in_count;
    auto [begin, end] = share(count, rank_, size_);
    if (count < kOwnPiece) begin = 0, end = i % size_ == rank_ ? count : 0;
    if (begin == end) continue;
    for (int r = 0; r < size_; ++r) {
      in[r] = source(r, i) + begin * item;
      out[r] = target(r, i) + begin * item;
    }
    reduce(in.data(), size_, out.data(), size_, end - begin, request.dtype, request.reduction);
  }
}

// What all ranks have on their stages, reduced into the results. Each rank for itself where there is little of it;
// otherwise each its part, which the others then take from its stage.
void Member::reduce_window(const Request& request, int64_t begin, int64_t count) {
  const int64_t item = item_of(request);
  std::vector<const char*> in(size_);
  if (size_ <= 2 || count * item <= kRedundant) {
    for_range(request.pieces, begin, count, [&](size_t i, int64_t first, int64_t n, int64_t done) {
      for (int r = 0; r < size_; ++r) in[r] = stage(r) + done * item;
      char* out = request.pieces[i].out + first * item;
      reduce(in.data(), size_, &out, 1, n, request.dtype, request.reduction);
    });
    return;
  }
  const auto [first, last] = share(count, rank_, size_);
  for (int r = 0; r < size_; ++r) in[r] = stage(r) + first * item;
  char* out = stage(rank_) + first * item;
  reduce(in.data(), size_, &out, 1, last - first, request.dtype, request.reduction);
  arrive();
  for (int r = 0; r < size_; ++r) {
    const auto [from, to] = share(count, r, size_);
    for_range(request.pieces, begin + from, to - from, [&](size_t i, int64_t at, int64_t n, int64_t done) {
      std::memcpy(request.pieces[i].out + at * item, stage(r) + (from + done) * item, n * item);
    });
  }
}

void Member::broadcast(const Request& request) {
  const int root = request.root;
  const int64_t item = item_of(request), count = descriptor(rank_).call.in_count, window = kStage / item;
  const auto take = [&](int64_t begin, int64_t n) {
    for_range(request.pieces, begin, n, [&](size_t i, int64_t first, int64_t part, int64_t done) {
      std::memcpy(request.pieces[i].out + first * item, stage(root) + done * item, part * item);
    });
  };
  if (is_small(descriptor(rank_))) return take(0, count);
  if (is_direct()) {
    for (size_t i = 0; i < request.pieces.size(); ++i)
      if (request.pieces[i].out != source(root, static_cast<int>(i)))
        std::memcpy(request.pieces[i].out, source(root, static_cast<int>(i)), request.pieces[i].in_count * item);
    return arrive();
  }
  for (int64_t begin = 0; begin < count; begin += window) {
    const int64_t n = std::min(window, count - begin);
    if (rank_ == root) put_on_stage(request, begin, n);
    publish();
    take(begin, n);
  }
}

// all_gather, reduce_scatter, reduce, all_to_all: every rank takes what it needs of the others' operands.
void Member::exchange(const Request& request) {
  const int64_t item = item_of(request);
  std::vector<const char*> sources(size_);
  int64_t most = 0;
  for (int r = 0; r < size_; ++r) most = std::max(most, descriptor(r).call.in_count);
  if (is_direct()) {
    for (int r = 0; r < size_; ++r) sources[r] = source(r, 0);
    take(request, 0, most, sources);
    arrive();
  } else {
    const int64_t window = kStage / item, own = descriptor(rank_).call.in_count;
    for (int64_t begin = 0; begin < most; begin += window) {
      put_on_stage(request, begin, std::clamp<int64_t>(own - begin, 0, window));
      publish();
      for (int r = 0; r < size_; ++r) sources[r] = stage(r);
      take(request, begin, begin + window, sources);
    }
  }
  if (request.kind == Kind::Reduce && rank_ != request.root)
    std::memset(request.pieces[0].out, 0, request.pieces[0].out_count * item);
}

// What this rank needs of elements [begin, end) of each operand; sources: where those lie.
void Member::take(const Request& request, int64_t begin, int64_t end, const std::vector<const char*>& sources) {
  const int64_t item = item_of(request);
  const Descriptor& mine = descriptor(rank_);
  char* out = request.pieces[0].out;
  if (request.kind == Kind::Reduce || request.kind == Kind::ReduceScatter) {
    const bool all = request.kind == Kind::Reduce;
    const int64_t count = mine.call.out_count;
    const int64_t first = all ? 0 : offset_in(mine.takes, mine.uneven, count, rank_);
    const int64_t from = std::max(begin, first), to = std::min(end, first + count);
    if (from >= to || (all && rank_ != request.root)) return;
    std::vector<const char*> in(size_);
    for (int r = 0; r < size_; ++r) in[r] = sources[r] + (from - begin) * item;
    out += (from - first) * item;
    return reduce(in.data(), size_, &out, 1, to - from, request.dtype, request.reduction);
  }
  for (int i = 0; i < size_; ++i) {
    const int r = (rank_ + i) % size_;
    const Descriptor& theirs = descriptor(r);
    const bool gather = request.kind == Kind::AllGather;
    const int64_t each = gather ? theirs.call.in_count : theirs.call.in_count / size_;
    const int64_t first = gather ? 0 : offset_in(theirs.sends, theirs.uneven, each, rank_);
    const int64_t count = mine.uneven ? mine.takes[r] : each;
    const int64_t place = offset_in(mine.takes, mine.uneven, each, r);
    const int64_t from = std::max(begin, first), to = std::min(end, first + count);
    if (from < to)
      std::memcpy(out + (place + from - first) * item, sources[r] + (from - begin) * item, (to - from) * item);
  }
}

}  // namespace tandem::collectives
