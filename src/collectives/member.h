// A rank of a group on one host: threads of one process, or processes that share memory.
#pragma once
#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/blocks.h"
#include "collectives/board.h"
#include "collectives/on_devices.h"
#include "collectives/order.h"
#include "memory/shared_heap.h"

namespace tandem::collectives {

class Member : public OnDevices {
 public:
  Member(std::shared_ptr<Board> board, int rank, std::vector<int> names);  // names: what ranks are called in messages
  ~Member() override;

  // Another rank's process: how to know that it lives, and its heap (-1: none). Descriptors are taken over.
  void connect(int rank, int pid, int heap);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void run(const Request& request) override;
  bool takes_factors() const override { return true; }
  std::vector<int64_t> meet(const Request& request, int64_t word) override;
  void leave(bool failed, const std::string& text) noexcept override;
  std::vector<Record> records() const override;
  std::string await_question(double seconds) override;
  void answer(const std::string& where) override;
  void set_timeout(double seconds) override { timeout_ = seconds; }
  bool of_threads() const override { return !board_->shared(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    int pidfd = -1;
    std::shared_ptr<heap::Mapping> mapping;
    char* heap = nullptr;  // its first byte here
  };

  // Note [Waiting]
  // A rank that waits spins for some microseconds, as long as ranks are no more than processors, and then sleeps on the
  // word that it waits for, in slices. Between slices it looks whether the others live (their pidfds, which tell at
  // once and cost nothing), whether one has failed, whether the user interrupts, and whether the time is over; and, as
  // a collective may wait in the background, whether this rank itself has left.
  void arrive();  // at the next meeting, and until all have
  void wait(std::atomic<uint32_t>& word, std::atomic<uint32_t>& sleepers, uint32_t until, int whom, const Call& call);
  bool find_failure();  // whether a rank has failed or was killed, which is then on the board
  void look_around(int whom, const Call& call, double waited, bool* warned);
  void check_presence(int whom, const Call& call);
  void mark_failed(const std::string& text) noexcept;
  [[noreturn]] void tell_failure(const Call& call) const override;
  std::vector<int> missing(int whom) const;  // that one, or (-1) the ranks that have not arrived at this meeting
  std::vector<int> present() const;          // ranks that are at the meeting that this rank is at
  std::string whereabouts(const std::vector<int>& ranks);  // what is known of them, a line each
  std::string name(int rank) const override { return "rank " + std::to_string(names_[rank]); }
  Entry& note(const Call& call);

  // for tensors on devices
  std::vector<int64_t> meet_alike(const Request& request, int64_t word) override { return hold_meeting(request, word); }
  void run_alike(const Request& request) override { collect(request); }
  void meet_again() override;
  void look(const Call& call) override;
  bool has_failed() override { return find_failure(); }
  Call latest_call() const override;
  bool is_left() const override { return left_; }
  bool on_one_host() const override { return true; }
  // Between threads they go through host memory: making a lane allocates device memory, which may wait for the kernels
  // of another lane, which wait for this thread.
  bool sends_by_device() const override { return !of_threads(); }
  void device_opened() override;

  // collectives.cc
  std::pair<Descriptor&, Entry&> begin(const Request& request);
  std::vector<int64_t> hold_meeting(const Request& request, int64_t word);
  void collect(const Request& request);
  void compare();
  std::vector<const Call*> compare(const std::vector<int>& ranks) const;
  void spread() const;
  const Descriptor& descriptor(int rank) const { return board_->slot(rank).descriptors[operations_ & 1]; }
  bool is_direct(int piece) const;
  bool is_direct() const;
  const char* source(int rank, int piece) const;
  char* target(int rank, int piece) const;
  char* at(int rank, Address address) const;
  void put_on_stage(const Request& request, int64_t begin, int64_t count);
  void publish();  // what was put there, at a meeting
  char* stage(int rank) const { return board_->stage(rank, publications_); }
  void all_reduce(const Request& request);
  void reduce_directly(const Request& request, const std::vector<int>& which);
  void reduce_window(const Request& request, int64_t begin, int64_t count);
  void broadcast(const Request& request);
  void exchange(const Request& request);
  void take(const Request& request, int64_t begin, int64_t end, const std::vector<const char*>& sources);

  // updates.cc
  void describe_updates(const Request& request, Descriptor& to) const;
  bool have_one_update(int piece) const;
  bool is_joined(int piece) const;
  void run_update(const Request& request, const library::Update& update) const;
  std::unique_ptr<Blocks> blocks_of(const Request& request, int piece, int64_t begin, int64_t end) const;

  // products.cc
  void describe_products(const Request& request, Descriptor& to);
  bool have_factors(int piece) const;
  bool is_shared_product(int piece) const;
  bool multiply_others(const Request& request) const;
  void reduce_product(const Request& request, int piece) const;
  std::unique_ptr<Blocks> product_of(const Request& request, int piece, int64_t begin, int64_t end) const;

  // channel.cc
  void send(const Request& request);
  void receive(const Request& request);
  void compare_message(const Request& request, const Descriptor& theirs, int other);

  std::shared_ptr<Board> board_;
  const int rank_, size_;
  const std::vector<int> names_;
  std::vector<Peer> peers_;
  Orders orders_;
  uint32_t phase_ = 0;              // the latest meeting
  uint32_t operations_ = 0;         // collectives begun: descriptors take turns by it,
  uint32_t publications_ = 0;       // and stages by this
  std::mutex entries_mutex_;        // guards the slot's entries
  std::vector<SharedCopy> copies_;  // of factors that others cannot look at, in this collective
  double timeout_ = 1800;
  bool can_look_at_all_ = true;  // whether the heaps of all others are mapped here
  uint32_t answered_ = 0;
  std::atomic<bool> left_ = false;
};

void describe(const Request& request, bool threads, Descriptor& to);

// Asked by threads that wait, now and then: throws where the user has interrupted the program.
extern void (*check_interrupt)();

}  // namespace tandem::collectives
