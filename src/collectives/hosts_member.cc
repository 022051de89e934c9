#include "collectives/hosts_member.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <thread>

#include "check.h"
#include "collectives/hosts_outline.h"
#include "collectives/member.h"

namespace tandem::collectives {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kLook = 0.02, kWarnAfter = 30, kLeave = 1, kNews = 2;  // seconds
constexpr int kRecorded = 32;

double now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

uint64_t hash_of(const std::vector<int64_t>& numbers, uint64_t hash) {
  for (const int64_t n : numbers) hash = (hash ^ static_cast<uint64_t>(n)) * 1099511628211ull;
  return hash;
}

// Equal on ranks whose operands fit together.
uint64_t sizes_of(const Request& request) {
  uint64_t hash = 14695981039346656037ull;
  if (request.pieces.size() > 1)
    for (const Piece& piece : request.pieces) hash = hash_of({piece.in_count}, hash);
  return request.kind == Kind::AllToAll ? hash : hash_of(request.takes, hash);
}

}  // namespace

HostsMember::HostsMember(std::shared_ptr<World> world, std::unique_ptr<Network> network, std::vector<int> ranks,
                         int rank)
    : ranks_(std::move(ranks)),
      rank_(rank),
      world_(std::move(world)),
      network_(std::move(network)),
      left_after_(ranks_.size(), -1) {
  TD_CHECK(rank >= 0 && rank < size());
  when_over_ = world_->when_over([this] { watch_devices(); });
}

HostsMember::~HostsMember() {
  leave(false, "");
  world_->forget(when_over_);
}

void HostsMember::note_left(int rank, int64_t number) {
  const std::lock_guard guard(notes_mutex_);
  const auto at = std::find(ranks_.begin(), ranks_.end(), rank);
  if (at != ranks_.end()) left_after_[at - ranks_.begin()] = number;
}

int64_t HostsMember::entered() const {
  const std::lock_guard guard(notes_mutex_);
  return entered_;
}

int64_t HostsMember::note(const Call& call) {
  const std::lock_guard guard(notes_mutex_);
  notes_.push_back({++entered_, now(), false, call});
  if (notes_.size() > kRecorded) notes_.pop_front();
  return entered_;
}

void HostsMember::finish(int64_t number) {
  const std::lock_guard guard(notes_mutex_);
  for (Noted& n : notes_)
    if (n.sequence == number) n.done = true;
}

std::vector<Record> HostsMember::records() const {
  const std::lock_guard guard(notes_mutex_);
  std::vector<Record> all;
  for (const Noted& n : notes_) all.push_back({ranks_[rank_], n.sequence, describe(n.call), n.done, now() - n.began});
  return all;
}

std::string HostsMember::await_question(double seconds) {  // the watcher asks the key-value service
  if (!left_) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  return left_ ? "end" : "";
}

void HostsMember::answer(const std::string&) {}

// What this rank has given to the network is on its way when all have come to their end, or after a short while.
void HostsMember::leave(bool failed, const std::string& text) noexcept {
  if (left_.exchange(true)) return;
  if (failed) world_->tell("this rank failed (" + text + ")");
  close_devices(failed);
  if (world_->is_over()) return;
  try {
    const Network::Begun all = network_->farewell();
    const double began = now();
    while (all && !world_->is_over() && now() - began < kLeave && !all->wait(now() - began, false)) {
    }
  } catch (const Error&) {  // the others have gone
  }
}

void HostsMember::wait(Transfer& transfer, const Call& call, bool moving) {
  const double began = now();
  double looked = began;
  bool warned = false;
  while (true) {
    if (world_->is_over()) tell_failure(call);
    try {
      if (transfer.wait(now() - began, moving)) return;
    } catch (const Error& error) {  // a lost connection, most likely; the service knows whose
      const double lost = now();
      while (!world_->is_over() && now() - lost < kNews) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (!world_->is_over()) fail(ErrorKind::Distributed, describe(call), ": ", error.what());
      continue;
    }
    const double time = now();
    if (time - looked < kLook) continue;
    looked = time;
    try {
      look_around(call, time - began, &warned);
    } catch (...) {  // others count on what this rank has announced
      const std::string text = "it gave up waiting in " + describe(call);
      world_->tell("this rank failed (" + text + ")");
      if (report_) report_(text);
      throw;
    }
  }
}

void HostsMember::look_around(const Call& call, double waited, bool* warned) {
  if (left_) fail(ErrorKind::Distributed, "this rank has left the group, and ", describe(call), " cannot complete");
  if (check_interrupt) check_interrupt();
  int64_t number;
  {
    const std::lock_guard guard(notes_mutex_);
    number = entered_;
    for (int r = 0; r < size(); ++r)
      if (left_after_[r] >= 0 && left_after_[r] < number)
        fail(ErrorKind::Distributed, "rank ", ranks_[r], " has left the group, and ", describe(call), " waits for it",
             "\n  fix: call collectives the same number of times on every rank");
  }
  if (waited > timeout_) {
    std::ostringstream text;
    text << "waited " << timeout_ << " s in " << describe(call) << " for others" << (ask_ ? ask_(number) : "")
         << "\n  fix: see what keeps them there; a longer wait is init_process_group(timeout=...)";
    fail(ErrorKind::Deadline, text.str());
  }
  if (waited > kWarnAfter && !*warned) {
    *warned = true;
    fprintf(stderr, "tandem: rank %d has waited %.0f s in %s%s\n", ranks_[rank_], waited, describe(call).c_str(),
            ask_ ? ask_(number).c_str() : "");
  }
}

std::vector<HostsMember::Outline> HostsMember::hold_meeting(const Request& request, const Call& call, int64_t word) {
  Outline mine{};
  mine.call = call;
  mine.num_pieces = static_cast<int32_t>(request.pieces.size());
  mine.uneven = !request.sends.empty() || !request.takes.empty();
  mine.sizes = sizes_of(request);
  mine.word = word;
  const auto item = static_cast<int64_t>(item_size(request.dtype));
  if (!request.on_device && call.in_count * item <= kInline && request.kind != Kind::AllToAll) {
    int64_t at = 0;
    for (const Piece& piece : request.pieces) {
      if (!piece.in) continue;
      std::memcpy(mine.payload + at, piece.in, piece.in_count * item);
      at += piece.in_count * item;
    }
  }
  std::vector<Outline> all(size());
  const std::vector<int64_t> each(size(), sizeof(Outline));
  const auto moved =
      network_->gather(reinterpret_cast<const char*>(&mine), sizeof mine, reinterpret_cast<char*>(all.data()), each);
  wait(*moved, call, false);
  bool agree = true;
  for (const Outline& other : all)
    agree &= fits(mine.call, other.call, mine.uneven) && mine.num_pieces == other.num_pieces &&
             mine.uneven == other.uneven && mine.sizes == other.sizes;
  std::vector<const Call*> calls;
  for (const Outline& other : all) calls.push_back(&other.call);
  if (!agree) fail(ErrorKind::Distributed, disagreement(calls, ranks_, entered()));
  orders_.compare(calls, ranks_, entered(), rank_ == 0);
  return all;
}

std::vector<int64_t> HostsMember::meet(const Request& request, int64_t word) {
  const std::lock_guard guard(mutex_);
  return meet_alike(request, word);
}

std::vector<int64_t> HostsMember::meet_alike(const Request& request, int64_t word) {
  Call call;
  describe(request, call);
  const int64_t number = note(call);
  if (world_->is_over()) tell_failure(call);
  std::vector<int64_t> words;
  for (const Outline& other : hold_meeting(request, call, word)) words.push_back(other.word);
  finish(number);
  return words;
}

void HostsMember::run_alike(const Request& request) {
  Call call;
  describe(request, call);
  const int64_t number = note(call);
  if (world_->is_over()) tell_failure(call);
  collect(request, call);
  finish(number);
}

void HostsMember::look(const Call& call) {
  if (world_->is_over()) tell_failure(call);
  if (check_interrupt) check_interrupt();
}

void HostsMember::tell_failure(const Call& call) const {
  fail(ErrorKind::Distributed, world_->why(), ", so that ", describe(call), " cannot complete");
}

Call HostsMember::latest_call() const {
  const std::lock_guard guard(notes_mutex_);
  return notes_.empty() ? Call{} : notes_.back().call;
}

void HostsMember::run(const Request& request) {
  if (left_) fail(ErrorKind::Distributed, "this group of ranks was destroyed\n  fix: call init_process_group again");
  if (request.kind != Kind::Send && request.kind != Kind::Receive) {
    const std::lock_guard guard(mutex_);
    return run_alike(request);
  }
  Call call;
  describe(request, call);
  const int64_t number = note(call);
  if (world_->is_over()) tell_failure(call);
  request.kind == Kind::Send ? send(request, call) : receive(request, call);
  finish(number);
}

}  // namespace tandem::collectives
