// A rank of a group whose ranks are on several hosts: MPI moves the bytes.
//
// Note [Over hosts]
// Ranks first meet: each gives all others its call and, if it is small, its operand. So ranks that were asked for
// different things are found before anything is moved, and a collective of a number or two is one exchange. What is
// reduced is exchanged and then reduced here, in the order of ranks (reduce.h): every dtype and reduction is there, and
// results have the same bits as on one host, whatever the number of hosts. MPI neither notices that a rank has died nor
// can go on without it. The key-value service does notice: each rank's watcher (tandem/distributed/mpi.py) holds a
// connection to it, and tells the groups of its process by `tell`. Whoever waits sees that between two looks at MPI,
// gives up, and nothing of MPI is called again in this process.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/call.h"
#include "collectives/communicator.h"
#include "collectives/mpi.h"

namespace tandem::collectives {

class MpiMember : public Communicator {
 public:
  // ranks: those of the group, as numbers in the world. All of them make it at the same time.
  MpiMember(std::vector<int> ranks, int rank, int tag, bool is_world);
  ~MpiMember() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  void run(const collectives::Request& request) override;
  bool queue(const collectives::Request& request, int device, cuda::Stream stream) override;
  std::vector<int64_t> meet(const collectives::Request& request, int64_t word) override;
  void leave(bool failed, const std::string& text) noexcept override;
  std::vector<Record> records() const override;  // of this rank
  std::string await_question(double seconds) override;
  void answer(const std::string& where) override;
  void set_timeout(double seconds) override { timeout_ = seconds; }
  bool of_threads() const override { return false; }
  void raise_device_failure() override {}

  static void tell(const std::string& failure);  // a rank has failed: all groups of this process end
  void note_left(int rank, int64_t number);      // a rank has left after so many calls
  int64_t entered() const;                       // calls so far
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

  int64_t note(const Call& call);
  void finish(int64_t number);
  // Until a request is done. `moving`: all ranks are there, so the wait is short and the library needs its turns.
  void wait(mpi::Request& request, const Call& call, bool moving);
  void look_around(const Call& call, double waited, bool* warned);
  std::vector<Outline> hold_meeting(const collectives::Request& request, const Call& call, int64_t word);
  void compare_exchange(const collectives::Request& request, const std::vector<int64_t>& sends,
                        const std::vector<int64_t>& takes, const Call& call);
  void collect(const collectives::Request& request, const Call& call);
  void take_inline(const collectives::Request& request, const std::vector<Outline>& all);

  void start_gather(const char* in, int64_t bytes, char* out, const std::vector<int64_t>& each, mpi::Request* made);
  void gather(const char* in, int64_t bytes, char* out, const std::vector<int64_t>& each, const Call& call);
  void exchange(const char* in, const std::vector<int64_t>& sends, const std::vector<int64_t>& sends_at, char* out,
                const std::vector<int64_t>& takes, const Call& call);
  void all_reduce(const collectives::Request& request, const Call& call);
  void reduce_scatter(const collectives::Request& request, const Call& call);
  void reduce_to_root(const collectives::Request& request, const Call& call);
  void all_gather(const collectives::Request& request, const Call& call);
  void all_to_all(const collectives::Request& request, const Call& call);
  void broadcast(const collectives::Request& request, const Call& call);
  void reduce_parts(const collectives::Request& request, int64_t count, char* out);
  void send(const collectives::Request& request, const Call& call);
  void receive(const collectives::Request& request, const Call& call);

  const std::vector<int> ranks_;
  const int rank_;
  mpi::Comm comm_, farewell_ = nullptr;
  const bool is_world_;
  std::mutex mutex_;  // one collective at a time
  std::vector<char> packed_, parts_, reduced_, results_;
  std::vector<int64_t> counts_;
  std::vector<mpi::Offset> offsets_;
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
