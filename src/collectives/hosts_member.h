// A rank of a group whose ranks are on several hosts: a network (MPI or Gloo) moves the bytes.
//
// Note [Over hosts]
// Ranks first meet: each gives all others its call and, if it is small, its operand. So ranks that were asked for
// different things are found before anything is moved, and a collective of a number or two is one exchange. What is
// reduced is exchanged and then reduced here, in the order of ranks (reduce.h): every dtype and reduction is there, and
// results have the same bits as on one host, whatever the number of hosts. Detection never relies on the network: MPI
// does not notice that a rank has died, and Gloo does not say which. The key-value service does notice: each rank's
// watcher (tandem/distributed/network.py) holds a connection to it, and tells the world of its process. Whoever waits
// sees that between two looks at the network, gives up, and nothing of that network is called again.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/call.h"
#include "collectives/network.h"
#include "collectives/on_devices.h"
#include "collectives/order.h"

namespace tandem::collectives {

class HostsMember : public OnDevices {
 public:
  // ranks: those of the group, as numbers in the world
  HostsMember(std::shared_ptr<World> world, std::unique_ptr<Network> network, std::vector<int> ranks, int rank);
  ~HostsMember() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  void run(const Request& request) override;
  std::vector<int64_t> meet(const Request& request, int64_t word) override;
  void leave(bool failed, const std::string& text) noexcept override;
  std::vector<Record> records() const override;  // of this rank
  std::string await_question(double seconds) override;
  void answer(const std::string& where) override;
  void set_timeout(double seconds) override { timeout_ = seconds; }
  bool of_threads() const override { return false; }
  void let_send_by_device() { sends_by_device_ = true; }  // as all ranks have NCCL

  void note_left(int rank, int64_t number);  // a rank has left after so many calls
  int64_t entered() const;                   // calls so far
  // Where the others are, a line each, when this rank waits for them in the call of this number; and how to tell them
  // that it has given up.
  using Ask = std::function<std::string(int64_t number)>;
  using Report = std::function<void(const std::string& text)>;
  void connect(Ask ask, Report report) { ask_ = std::move(ask), report_ = std::move(report); }

 private:
  struct Outline;
  struct Noted {
    int64_t sequence;
    double began;
    bool done;
    Call call;
  };

  // for tensors on devices
  std::vector<int64_t> meet_alike(const Request& request, int64_t word) override;
  void run_alike(const Request& request) override;
  void look(const Call& call) override;
  bool has_failed() override { return world_->is_over(); }
  [[noreturn]] void tell_failure(const Call& call) const override;
  Call latest_call() const override;
  std::string name(int rank) const override { return "rank " + std::to_string(ranks_[rank]); }
  bool is_left() const override { return left_; }
  bool on_one_host() const override { return false; }
  bool sends_by_device() const override { return sends_by_device_; }

  int64_t note(const Call& call);
  void finish(int64_t number);
  // Until a request is done. `moving`: all ranks are there, so the wait is short and the library needs its turns.
  void wait(Transfer& transfer, const Call& call, bool moving);
  void look_around(const Call& call, double waited, bool* warned);
  std::vector<Outline> hold_meeting(const Request& request, const Call& call, int64_t word);
  void compare_exchange(const Request& request, const std::vector<int64_t>& sends, const std::vector<int64_t>& takes,
                        const Call& call);
  void collect(const Request& request, const Call& call);
  void take_inline(const Request& request, const std::vector<Outline>& all);

  void gather(const char* in, int64_t bytes, char* out, const std::vector<int64_t>& each, const Call& call);
  void exchange(const char* in, const std::vector<int64_t>& sends, const std::vector<int64_t>& sends_at, char* out,
                const std::vector<int64_t>& takes, const Call& call);
  void all_reduce(const Request& request, const Call& call);
  void reduce_scatter(const Request& request, const Call& call);
  void reduce_to_root(const Request& request, const Call& call);
  void all_gather(const Request& request, const Call& call);
  void all_to_all(const Request& request, const Call& call);
  void broadcast(const Request& request, const Call& call);
  void reduce_parts(const Request& request, int64_t count, char* out);
  void send(const Request& request, const Call& call);
  void receive(const Request& request, const Call& call);

  const std::vector<int> ranks_;
  const int rank_;
  const std::shared_ptr<World> world_;
  const std::unique_ptr<Network> network_;
  int64_t when_over_;  // what the world calls
  bool sends_by_device_ = false;
  Orders orders_;
  std::vector<char> packed_, parts_, reduced_, results_;
  mutable std::mutex notes_mutex_;  // guards what follows
  std::deque<Noted> notes_;
  int64_t entered_ = 0;
  std::vector<int64_t> left_after_;  // by rank; -1: it is here
  double timeout_ = 1800;
  Ask ask_;
  Report report_;
  std::atomic<bool> left_ = false;
};

}  // namespace tandem::collectives
