// Collectives that a program has begun and goes on beside.
//
// Note [Begun collectives]
// Over hosts a collective is mostly waiting, so programs begin it as soon as its operands are there and wait for it
// where somebody needs its result or writes its operands (tandem/codegen/overlap.py): two instructions. A group has one
// thread that runs what was begun, in that order, so the order of collectives is that of the program on every rank. A
// collective that is not begun in this way waits for those before it. What failed throws where it is waited for. A
// program that fails in between first waits for what it has begun, as that reads and writes the program's memory.
//
// Calls with async_op=True are run by a thread of Python's (tandem/distributed/work.py), which says when it takes and
// has done them: whatever else this rank runs comes after those that were called before it.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "collectives/communicator.h"

namespace tandem::collectives {

class Background {
 public:
  explicit Background(Communicator& group) : group_(group) {}
  ~Background();  // nothing may be under way
  Background(const Background&) = delete;

  void begin(Request request);
  void wait(const char* out);  // for the one with a piece that has its result there; throws what it failed with
  void finish();               // for all, and those of Python's thread

  void queue_up() { ++queued_; }  // a call for Python's thread
  void queue_done();
  static void serve_queue();  // the calling thread is one of those
  void settle() noexcept;      // for all, whatever happens, and forgets what they failed with

 private:
  struct Begun {
    Request request;
    bool done = false;
    std::exception_ptr failure;
  };

  void serve();
  // Until done() holds, looking for interrupts; `interrupted` is called before one is thrown.
  template <typename Done, typename Interrupted>
  void await(std::unique_lock<std::mutex>& lock, Done done, Interrupted interrupted);
  void await(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Begun>& one);
  void await_queue(std::unique_lock<std::mutex>& lock);

  Communicator& group_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Begun>> open_;    // not run yet
  std::vector<std::shared_ptr<Begun>> begun_;  // not waited for yet
  bool ends_ = false;
  std::thread thread_;
  std::atomic<int64_t> queued_ = 0;  // calls that Python's thread has not done
};

}  // namespace tandem::collectives
