// What every engine offers: the collectives of one group, as one of its ranks takes part in them.
//
// Programs name a group by a small number (`token`); which rank runs them the thread knows (Context), so that a program
// is the same on all ranks, also where ranks are threads of one process.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensor/view.h"

namespace tandem::collectives {

// The numbers are those of tandem/ops/collective.py.
enum class Kind : uint32_t { AllReduce, AllGather, ReduceScatter, Broadcast, Reduce, AllToAll, Barrier, Send, Receive };
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
};

struct Record {  // of the flight recorder
  int rank;
  int64_t sequence;
  std::string text;  // all_reduce(sum) of float32 (3, 4) at train.py:12
  bool done;
  double age;  // seconds since it began
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void run(const Request& request) = 0;  // without the GIL; throws Error
  // No further calls: the rank ends as it should, or by a failure that others are told about.
  virtual void leave(bool failed, const std::string& text) noexcept = 0;
  virtual std::vector<Record> records() const = 0;         // the latest of every rank
  virtual std::string await_question(double seconds) = 0;  // "where" when another rank asks, "" after this time, "end"
  virtual void answer(const std::string& where) = 0;
  virtual void set_timeout(double seconds) = 0;
};

// The groups of one rank, by token. A thread uses the one that it entered, else that of the process.
class Context {
 public:
  void put(int64_t token, std::shared_ptr<Communicator> communicator);
  std::shared_ptr<Communicator> find(int64_t token) const;  // null if there is none

  static void enter(std::shared_ptr<Context> context);  // this thread's; null: none of its own
  static void set_default(std::shared_ptr<Context> context);
  static std::shared_ptr<Context> current();

 private:
  std::vector<std::shared_ptr<Communicator>> groups_;  // with the GIL
};

}  // namespace tandem::collectives
