#include "collectives/mpi_member.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <thread>

#include "check.h"
#include "collectives/member.h"
#include "collectives/mpi_outline.h"

namespace tandem::collectives {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kSpin = 50e-6, kLook = 0.02, kWarnAfter = 30, kLeave = 1, kNews = 2;  // seconds
constexpr int kRecorded = 32;

double now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// Once MPI cannot go on, nothing of it is called in this process.
std::atomic<bool> over{false};
std::mutex reason_mutex;
std::string reason;

std::string why() {
  const std::lock_guard guard(reason_mutex);
  return reason;
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

MpiMember::MpiMember(std::vector<int> ranks, int rank, int tag, bool is_world)
    : ranks_(std::move(ranks)), rank_(rank), comm_(mpi::kWorld), is_world_(is_world), left_after_(ranks_.size(), -1) {
  TD_CHECK(rank >= 0 && rank < size());
  const std::lock_guard guard(mpi::mutex());
  if (over) fail(ErrorKind::Distributed, why());
  const mpi::Api& api = mpi::api();
  mpi::Group all, some;
  mpi::check(api.comm_group(mpi::kWorld, &all), "naming a group");
  mpi::check(api.group_incl(all, size(), ranks_.data(), &some), "naming a group");
  const int status = api.create(mpi::kWorld, some, tag, is_world_ ? &farewell_ : &comm_);
  api.group_free(&some);
  api.group_free(&all);
  mpi::check(status, "making a group");
  api.set_errors(is_world_ ? farewell_ : comm_, mpi::kReturnErrors);
}

MpiMember::~MpiMember() {
  leave(false, "");
}

void MpiMember::tell(const std::string& failure) {
  const std::lock_guard guard(reason_mutex);
  if (reason.empty()) reason = failure;
  over = true;
}

void MpiMember::note_left(int rank, int64_t number) {
  const std::lock_guard guard(notes_mutex_);
  const auto at = std::find(ranks_.begin(), ranks_.end(), rank);
  if (at != ranks_.end()) left_after_[at - ranks_.begin()] = number;
}

int64_t MpiMember::entered() const {
  const std::lock_guard guard(notes_mutex_);
  return entered_;
}

int64_t MpiMember::note(const Call& call) {
  const std::lock_guard guard(notes_mutex_);
  notes_.push_back({++entered_, now(), false, call});
  if (notes_.size() > kRecorded) notes_.pop_front();
  return entered_;
}

void MpiMember::finish(int64_t number) {
  const std::lock_guard guard(notes_mutex_);
  for (Noted& n : notes_)
    if (n.sequence == number) n.done = true;
}

std::vector<Record> MpiMember::records() const {
  const std::lock_guard guard(notes_mutex_);
  std::vector<Record> all;
  for (const Noted& n : notes_) all.push_back({ranks_[rank_], n.sequence, describe(n.call), n.done, now() - n.began});
  return all;
}

std::string MpiMember::await_question(double seconds) {  // the watcher asks the key-value service
  if (!left_) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  return left_ ? "end" : "";
}

void MpiMember::answer(const std::string&) {}

// What this rank has given to the library is on its way when all have come to their end, or after a short while. They
// meet in a group of its own, as others may still be in a collective.
void MpiMember::leave(bool failed, const std::string& text) noexcept {
  if (left_.exchange(true)) return;
  if (failed) return tell("this rank failed (" + text + ")");
  if (!is_world_) return;
  const auto began = Clock::now();
  mpi::Request request = mpi::kNoRequest;
  int done = 0;
  while (!over && std::chrono::duration<double>(Clock::now() - began).count() < kLeave) {
    {
      const std::lock_guard guard(mpi::mutex());
      if (request == mpi::kNoRequest && mpi::api().barrier(farewell_, &request)) return;
      if (mpi::api().test(&request, &done, nullptr)) return;
      if (done) mpi::api().free(&farewell_);
    }
    if (done) break;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void MpiMember::wait(mpi::Request& request, const Call& call, bool moving) {
  const double began = now();
  double looked = began;
  bool warned = false;
  while (true) {
    int done = 0, status = 0;
    {
      const std::lock_guard guard(mpi::mutex());
      if (!over) status = mpi::api().test(&request, &done, nullptr);
    }
    const double time = now(), waited = time - began;
    if (status) {  // a lost connection, most likely; the service knows whose
      while (!over && now() - time < kNews) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (!over) mpi::check(status, describe(call).c_str());
    }
    if (done) return;
    if (over) fail(ErrorKind::Distributed, why(), ", so that ", describe(call), " cannot complete");
    if (time - looked > kLook) {
      looked = time;
      try {
        look_around(call, waited, &warned);
      } catch (...) {  // others count on what this rank has announced
        const std::string text = "it gave up waiting in " + describe(call);
        tell("this rank failed (" + text + ")");
        if (report_) report_(text);
        throw;
      }
    }
    if (waited < kSpin || (moving && waited < 1))
      sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(waited / 8, 1e-3)));
  }
}

void MpiMember::look_around(const Call& call, double waited, bool* warned) {
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

std::vector<MpiMember::Outline> MpiMember::hold_meeting(const Request& request, const Call& call, int64_t word) {
  Outline mine{};
  mine.call = call;
  mine.num_pieces = static_cast<int32_t>(request.pieces.size());
  mine.uneven = !request.sends.empty() || !request.takes.empty();
  mine.sizes = sizes_of(request);
  mine.word = word;
  const auto item = static_cast<int64_t>(item_size(request.dtype));
  if (call.in_count * item <= kInline && request.kind != Kind::AllToAll) {
    int64_t at = 0;
    for (const Piece& piece : request.pieces) {
      if (!piece.in) continue;
      std::memcpy(mine.payload + at, piece.in, piece.in_count * item);
      at += piece.in_count * item;
    }
  }
  std::vector<Outline> all(size());
  const std::vector<int64_t> each(size(), sizeof(Outline));
  mpi::Request moved;
  start_gather(reinterpret_cast<const char*>(&mine), sizeof mine, reinterpret_cast<char*>(all.data()), each, &moved);
  wait(moved, call, false);
  bool agree = true;
  for (const Outline& other : all)
    agree &= fits(mine.call, other.call, mine.uneven) && mine.num_pieces == other.num_pieces &&
             mine.uneven == other.uneven && mine.sizes == other.sizes;
  if (!agree) {
    std::vector<const Call*> calls;
    for (const Outline& other : all) calls.push_back(&other.call);
    fail(ErrorKind::Distributed, disagreement(calls, ranks_, entered()));
  }
  return all;
}

std::vector<int64_t> MpiMember::meet(const Request& request, int64_t word) {
  const std::lock_guard guard(mutex_);
  Call call;
  describe(request, call);
  const int64_t number = note(call);
  std::vector<int64_t> words;
  for (const Outline& other : hold_meeting(request, call, word)) words.push_back(other.word);
  finish(number);
  return words;
}

void MpiMember::run(const Request& request) {
  if (left_) fail(ErrorKind::Distributed, "this group of ranks was destroyed\n  fix: call init_process_group again");
  Call call;
  describe(request, call);
  const int64_t number = note(call);
  if (over) fail(ErrorKind::Distributed, why(), ", so that ", describe(call), " cannot complete");
  if (request.kind == Kind::Send) {
    send(request, call);
  } else if (request.kind == Kind::Receive) {
    receive(request, call);
  } else {
    const std::lock_guard guard(mutex_);
    collect(request, call);
  }
  finish(number);
}

bool MpiMember::queue(const Request&, int, cuda::Stream) {
  return false;  // tensors of devices go through host memory
}

}  // namespace tandem::collectives
