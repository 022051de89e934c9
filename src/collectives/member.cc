#include "collectives/member.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <thread>

#include "check.h"
#include "collectives/futex.h"
#include "device/relax.h"
#include "memory/shared_heap.h"

namespace tandem::collectives {
namespace {

constexpr double kSpin = 25e-6;         // seconds
constexpr int64_t kSlice = 20'000'000;  // nanoseconds
constexpr double kCompareAfter = 8, kWarnAfter = 30, kAnswer = 5, kWatch = 0.1;
constexpr int kAll = -1;

int64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

int processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

void copy_text(char* to, size_t size, const std::string& text) {
  const size_t n = std::min(size - 1, text.size());
  memcpy(to, text.data(), n);
  to[n] = 0;
}

bool reached(uint32_t phase, uint32_t until) {
  return static_cast<int32_t>(phase - until) >= 0;
}

}  // namespace

void (*check_interrupt)() = nullptr;

Member::Member(std::shared_ptr<Board> board, int rank, std::vector<int> names)
    : board_(std::move(board)), rank_(rank), size_(board_->size()), names_(std::move(names)), peers_(size_) {
  TD_CHECK(rank >= 0 && rank < size_ && names_.size() == static_cast<size_t>(size_));
  Slot& mine = board_->slot(rank_);
  mine.pid = getpid();
  mine.presence.store(static_cast<uint32_t>(Presence::Here));
}

Member::~Member() {
  leave(false, "");
  for (const Peer& peer : peers_)
    if (peer.pidfd >= 0) close(peer.pidfd);
}

void Member::connect(int rank, int pid, int heap) {
  Peer& peer = peers_.at(rank);
  peer.pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (peer.pidfd < 0 && errno == ESRCH) fail(ErrorKind::Distributed, name(rank), " (process ", pid, ") has ended");
  if (heap >= 0) {
    peer.mapping = heap::attach(heap);
    peer.heap = peer.mapping ? peer.mapping->base : nullptr;
    close(heap);
  }
  can_look_at_all_ &= peer.heap != nullptr;
}

void Member::leave(bool failed, const std::string& text) noexcept {
  if (left_.exchange(true)) return;
  if (!failed) close_devices(false);  // what others wait for is done before
  Slot& mine = board_->slot(rank_);
  auto here = static_cast<uint32_t>(Presence::Here);
  if (failed)
    mark_failed(text);
  else
    mine.presence.compare_exchange_strong(here, static_cast<uint32_t>(Presence::Left));
  futex_wake(mine.phase);                   // those who wait look around
  board_->header().questions.fetch_add(1);  // and so does the thread that answers
  futex_wake(board_->header().questions);
  for (int r = 0; r < size_; ++r) {
    futex_wake(board_->channel(rank_, r).sent);
    futex_wake(board_->channel(r, rank_).taken);
  }
  if (failed) close_devices(true);
}

Entry& Member::note(const Call& call) {
  Slot& mine = board_->slot(rank_);
  std::lock_guard guard(entries_mutex_);
  const int64_t number = mine.entered.load() + 1;
  Entry& entry = mine.entries[number % kRecords];
  entry.sequence.store(0);
  entry.call = call;
  entry.began.store(now());
  entry.done.store(false);
  entry.sequence.store(number);
  mine.entered.store(number);
  return entry;
}

void Member::arrive() {
  Slot& mine = board_->slot(rank_);
  const Call& call = mine.descriptors[operations_ & 1].call;
  mine.phase.store(++phase_);
  if (mine.sleepers.load()) futex_wake(mine.phase);
  for (int i = 1; i < size_; ++i) {
    const int r = (rank_ + i) % size_;
    Slot& other = board_->slot(r);
    wait(other.phase, other.sleepers, phase_, kAll, call);
  }
}

void Member::wait(std::atomic<uint32_t>& word, std::atomic<uint32_t>& sleepers, uint32_t until, int whom,
                  const Call& call) {
  if (reached(word.load(std::memory_order_acquire), until)) return;
  const auto began = Clock::now();
  const auto waited = [&] { return std::chrono::duration<double>(Clock::now() - began).count(); };
  static const int count = processors();
  while (size_ <= count && waited() < kSpin)
    for (int i = 0; i < 16; ++i) {
      if (reached(word.load(std::memory_order_acquire), until)) return;
      relax();
    }
  bool warned = false;
  while (true) {
    const uint32_t seen = word.load();
    if (reached(seen, until)) return;
    sleepers.fetch_add(1);
    if (word.load() == seen) futex_wait(word, seen, kSlice);
    sleepers.fetch_sub(1);
    if (reached(word.load(), until)) return;
    try {
      look_around(whom, call, waited(), &warned);
    } catch (...) {  // others may count on what this rank has announced: the group cannot go on
      mark_failed("it gave up waiting in " + describe(call));
      throw;
    }
  }
}

void Member::mark_failed(const std::string& text) noexcept {
  Slot& mine = board_->slot(rank_);
  auto here = static_cast<uint32_t>(Presence::Here);
  if (mine.presence.load() != here) return;  // what came first says why
  copy_text(mine.failure, kText, text);
  if (!mine.presence.compare_exchange_strong(here, static_cast<uint32_t>(Presence::Failed))) return;
  uint32_t none = 0;
  board_->header().first_failed.compare_exchange_strong(none, rank_ + 1);
}

void Member::look_around(int whom, const Call& call, double waited, bool* warned) {
  if (left_) fail(ErrorKind::Distributed, "this rank has left the group, and ", describe(call), " cannot complete");
  check_presence(whom, call);
  if (check_interrupt) check_interrupt();
  if (waited > timeout_) {
    const std::vector<int> absent = missing(whom);
    std::ostringstream text;
    text << "waited " << timeout_ << " s in " << describe(call) << " for";
    for (size_t i = 0; i < absent.size(); ++i) text << (i ? ", " : " ") << name(absent[i]);
    text << whereabouts(absent) << "\n  fix: see what keeps it there; a longer wait is init_process_group(timeout=...)";
    fail(ErrorKind::Deadline, text.str());
  }
  // Whoever is missing may wait for a rank that is here, and never come: those who are here say that they disagree.
  if (whom == kAll && waited > std::min(kCompareAfter, timeout_ / 4)) compare(present());
  if (waited > kWarnAfter && !*warned) {
    *warned = true;
    const std::string known = whereabouts(missing(whom));
    fprintf(stderr, "tandem: %s has waited %.0f s in %s%s\n", name(rank_).c_str(), waited, describe(call).c_str(),
            known.c_str());
  }
}

// A rank that was killed comes before one that failed, perhaps for that reason; and the first before others.
bool Member::find_failure() {
  std::atomic<uint32_t>& first = board_->header().first_failed;
  if (first.load()) return true;
  for (int r = 0; r < size_; ++r) {
    if (peers_[r].pidfd < 0 || board_->slot(r).presence.load() == static_cast<uint32_t>(Presence::Left)) continue;
    pollfd wait{peers_[r].pidfd, POLLIN, 0};
    if (poll(&wait, 1, 0) != 1) continue;
    Slot& theirs = board_->slot(r);
    const auto here = static_cast<uint32_t>(Presence::Here);
    if (theirs.presence.load() == here) {
      copy_text(theirs.failure, kText,
                "process " + std::to_string(theirs.pid) + " has ended: it was killed or it crashed");
      theirs.presence.store(static_cast<uint32_t>(Presence::Failed));
    }
    if (theirs.presence.load() == static_cast<uint32_t>(Presence::Left)) continue;
    uint32_t none = 0;
    first.compare_exchange_strong(none, r + 1);
    return true;
  }
  return false;
}

void Member::check_presence(int whom, const Call& call) {
  if (find_failure()) tell_failure(call);
  for (const int r : missing(whom)) {
    if (board_->slot(r).presence.load() != static_cast<uint32_t>(Presence::Left)) continue;
    fail(ErrorKind::Distributed, name(r), " has left the group, and ", describe(call), " waits for it",
         whereabouts({r}), "\n  fix: call collectives the same number of times on every rank");
  }
}

void Member::tell_failure(const Call& call) const {
  const int r = static_cast<int>(board_->header().first_failed.load()) - 1;
  const Slot& theirs = board_->slot(r);
  std::ostringstream text;
  text << name(r) << " failed";
  if (theirs.failure[0]) text << " (" << theirs.failure << ')';
  text << ", so that " << describe(call) << " cannot complete";
  fail(ErrorKind::Distributed, text.str());
}

std::vector<int> Member::missing(int whom) const {
  std::vector<int> found;
  if (whom >= 0) return {whom};
  for (int r = 0; r < size_; ++r)
    if (!reached(board_->slot(r).phase.load(), phase_)) found.push_back(r);
  return found;
}

std::vector<int> Member::present() const {
  std::vector<int> found;
  for (int r = 0; r < size_; ++r)
    if (reached(board_->slot(r).phase.load(), phase_)) found.push_back(r);
  return found;
}

std::string Member::whereabouts(const std::vector<int>& ranks) {
  const uint32_t question = board_->header().questions.fetch_add(1) + 1;
  futex_wake(board_->header().questions);
  const auto began = Clock::now();
  const auto all_answered = [&] {
    return std::all_of(ranks.begin(), ranks.end(),
                       [&](int r) { return reached(board_->slot(r).answers.load(), question); });
  };
  while (!all_answered() && std::chrono::duration<double>(Clock::now() - began).count() < kAnswer)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  std::ostringstream text;
  for (const int r : ranks) {
    const Slot& theirs = board_->slot(r);
    text << "\n  " << name(r) << ": ";
    if (theirs.presence.load() == static_cast<uint32_t>(Presence::Left))
      text << "has left";
    else if (reached(theirs.answers.load(), question))
      text << "is at " << theirs.where;
    else
      text << "does not answer";
    const int64_t last = theirs.entered.load();
    const Entry& entry = theirs.entries[last % kRecords];
    if (last == 0)
      text << "; it has called no collective";
    else
      text << "; its " << (entry.done.load() ? "latest collective was " : "current collective is ") << "number " << last
           << ", " << describe(entry.call);
  }
  return text.str();
}

std::string Member::await_question(double seconds) {
  std::atomic<uint32_t>& questions = board_->header().questions;
  if (left_) return "end";
  if (has_devices()) seconds = std::min(seconds, kWatch);
  if (questions.load() == answered_) futex_wait(questions, answered_, static_cast<int64_t>(seconds * 1e9));
  if (left_) return "end";
  watch_devices();
  if (questions.load() == answered_) return "";
  answered_ = questions.load();
  return "where";
}

void Member::answer(const std::string& where) {
  Slot& mine = board_->slot(rank_);
  copy_text(mine.where, kText, where);
  mine.answers.store(answered_);
}

void Member::meet_again() {
  if (of_threads()) arrive();
}

void Member::look(const Call& call) {
  check_presence(kAll, call);
  if (check_interrupt) check_interrupt();
}

Call Member::latest_call() const {
  const Slot& mine = board_->slot(rank_);
  return mine.entries[mine.entered.load() % kRecords].call;
}

void Member::device_opened() {
  futex_wake(board_->header().questions);  // the watcher may be in a long sleep, and looks more often from now on
}

std::vector<Record> Member::records() const {
  std::vector<Record> all;
  const int64_t time = now();
  for (int r = 0; r < size_; ++r) {
    const Slot& slot = board_->slot(r);
    const int64_t last = slot.entered.load();
    for (int64_t i = std::max<int64_t>(1, last - kRecords + 2); i <= last; ++i) {
      const Entry& entry = slot.entries[i % kRecords];
      if (entry.sequence.load() != i) continue;
      all.push_back({names_[r], i, describe(entry.call), entry.done.load(),
                     static_cast<double>(time - entry.began.load()) * 1e-9});
    }
  }
  return all;
}

}  // namespace tandem::collectives
