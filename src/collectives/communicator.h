// What every engine offers: the collectives of one group, as one of its ranks takes part in them.
//
// Programs name a group by a small number (`token`); which rank runs them the thread knows (Context), so that a program
// is the same on all ranks, also where ranks are threads of one process.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/cuda/driver.h"
#include "library/factors.h"
#include "library/update.h"
#include "tensor/view.h"

namespace tandem::collectives {

// The numbers are those of tandem/ops/collective.py.
// Program: what ranks agree on before they run a recorded graph (agreement.cc).
enum class Kind : uint32_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  Broadcast,
  Reduce,
  AllToAll,
  Barrier,
  Send,
  Receive,
  Program
};
enum class Reduction : uint32_t { Sum, Average, Product, Minimum, Maximum, And, Or, Xor };

const char* name_of(Kind kind);
const char* name_of(Reduction reduction);

struct Piece {  // a contiguous operand and its result, either of which may be missing
  const char* in = nullptr;
  char* out = nullptr;
  int64_t in_count = 0, out_count = 0;  // elements
};

struct Request {
  Kind kind;
  Reduction reduction = Reduction::Sum;
  DType dtype = DType::Float32;
  int root = -1;  // Broadcast, Reduce: who has, or gets it. Send, Receive: the other one
  int64_t tag = 0;
  std::vector<Piece> pieces;          // one, but for AllReduce and Broadcast
  std::vector<int64_t> sends, takes;  // elements for each rank and from each, where they differ
  int ndim = 0;
  int64_t shape[8] = {};  // of the first operand, for messages
  std::string line;       // of the user's program
  bool on_device = false;
  std::shared_ptr<void> kept;                // memory that work on a device needs
  const library::Update* updates = nullptr;  // of AllReduce: what follows; whoever runs one says so (`done`)
  int num_updates = 0;
  const library::Factors* factors = nullptr;  // of AllReduce: of operands that whoever runs it has to compute
  int num_factors = 0;
};

struct Record {  // of the flight recorder
  int rank;
  int64_t sequence;
  std::string text;  // all_reduce(sum) of float32 (3, 4) at train.py:12
  bool done;
  double age;  // seconds since it began
};

class Background;

class Communicator {
 public:
  Communicator();
  virtual ~Communicator();
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void run(const Request& request) = 0;         // without the GIL; throws Error
  virtual bool takes_factors() const { return false; }  // whether requests may have some
  // The same on memory of a device: queued behind what the stream has, and left as side work (device/cuda/side_work.h).
  // False, on all ranks alike, if there is no such routine for devices: copies in host memory have to do.
  virtual bool queue(const Request& request, int device, cuda::Stream stream) = 0;
  // A meeting: gives the word of every rank, once all have been asked for the same.
  virtual std::vector<int64_t> meet(const Request& request, int64_t word) = 0;
  // No further calls: the rank ends as it should, or by a failure that others are told about.
  virtual void leave(bool failed, const std::string& text) noexcept = 0;
  virtual std::vector<Record> records() const = 0;         // the latest of every rank
  virtual std::string await_question(double seconds) = 0;  // "where" when another rank asks, "" after this time, "end"
  virtual void answer(const std::string& where) = 0;
  virtual void set_timeout(double seconds) = 0;
  virtual bool of_threads() const = 0;      // whether ranks are threads of this process
  virtual void raise_device_failure() = 0;  // throws, once, if work of this group on devices was given up
  const int64_t number = next_number();     // of all that this process has had

  Background& background();  // what was begun: Note [Begun collectives] in background.h
  bool has_background() const { return has_background_.load(); }

 private:
  static int64_t next_number();
  std::once_flag background_made_;
  std::atomic<bool> has_background_ = false;
  std::unique_ptr<Background> background_;
};

// The groups of one rank, by token. A thread uses the one that it entered, else that of the process.
class Context {
 public:
  explicit Context(int rank_in_process = 0) : rank_in_process_(rank_in_process) {}
  void put(int64_t token, std::shared_ptr<Communicator> communicator);
  std::shared_ptr<Communicator> find(int64_t token) const;  // null if there is none

  static void enter(std::shared_ptr<Context> context);  // this thread's; null: none of its own
  static void set_default(std::shared_ptr<Context> context);
  static std::shared_ptr<Context> current();
  const std::vector<std::shared_ptr<Communicator>>& groups() const { return groups_; }

 private:
  const int rank_in_process_;                          // where ranks are threads; see modes.h
  std::vector<std::shared_ptr<Communicator>> groups_;  // with the GIL
};

}  // namespace tandem::collectives
