// Bytes moved by MPI. A group has a communicator of MPI's, and the group of all ranks a second one, for its end.
#pragma once
#include "collectives/mpi.h"
#include "collectives/network.h"

namespace tandem::collectives {

class MpiNetwork : public Network {
 public:
  // ranks: those of the group, as numbers in the world. All of them make it at the same time.
  MpiNetwork(const std::vector<int>& ranks, int tag, bool is_world);
  Begun gather(const char* in, int64_t bytes, char* out, const Sizes& each) override;
  Begun exchange(const char* in, const Sizes& sends, const Sizes& sends_at, char* out, const Sizes& takes) override;
  Begun broadcast(char* data, int64_t bytes, int root) override;
  Begun send(const char* data, int64_t bytes, int to, int tag) override;
  Begun receive(char* data, int64_t bytes, int from, int tag) override;
  Begun farewell() override;

 private:
  mpi::Comm comm_ = mpi::kWorld, farewell_ = nullptr;
};

}  // namespace tandem::collectives
