// How bytes move between the ranks of a group on several hosts: MPI (mpi_network.h) or Gloo (gloo_network.h).
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tandem::collectives {

// What is under way. Whoever waits for it looks around between two waits.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Whether it is done, after a wait of at most some milliseconds; throws where the connection is lost. waited: seconds
  // so far; moving: all ranks are there, so that it is soon done.
  virtual bool wait(double waited, bool moving) = 0;
};

class Network {
 public:
  using Sizes = std::vector<int64_t>;  // bytes for each rank, or of each
  using Begun = std::unique_ptr<Transfer>;
  virtual ~Network() = default;
  // Each rank's bytes to all, in the order of ranks.
  virtual Begun gather(const char* in, int64_t bytes, char* out, const Sizes& each) = 0;
  virtual Begun exchange(const char* in, const Sizes& sends, const Sizes& sends_at, char* out, const Sizes& takes) = 0;
  virtual Begun broadcast(char* data, int64_t bytes, int root) = 0;
  virtual Begun send(const char* data, int64_t bytes, int to, int tag) = 0;
  virtual Begun receive(char* data, int64_t bytes, int from, int tag) = 0;
  // All ranks of the world come to their end; null: what was sent has arrived, and nobody need wait.
  virtual Begun farewell() = 0;
};

// The ranks that were formed together. Once one of them has failed, their network is used no more.
class World {
 public:
  void tell(const std::string& failure);  // a rank has failed: whoever waits gives up
  bool is_over() const { return over_; }
  std::string why() const;
  int64_t when_over(std::function<void()> call);  // by whoever tells; at once if it is over
  void forget(int64_t call);

 private:
  std::atomic<bool> over_{false};
  mutable std::mutex mutex_;  // guards what follows
  std::string reason_;
  int64_t calls_ = 0;
  std::map<int64_t, std::function<void()>> when_over_;
};

}  // namespace tandem::collectives
