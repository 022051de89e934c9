#include "collectives/mpi_network.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

namespace tandem::collectives {
namespace {

constexpr double kSpin = 50e-6;  // seconds

// A request, with the numbers that the library may read until it is done.
class MpiTransfer : public Transfer {
 public:
  bool wait(double waited, bool moving) override {
    int done = 0;
    {
      const std::lock_guard guard(mpi::mutex());
      mpi::check(mpi::api().test(&request, &done, nullptr), "moving bytes");
    }
    if (done) return true;
    if (waited < kSpin || (moving && waited < 1))
      sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(waited / 8, 1e-3)));
    return false;
  }

  mpi::Request request = mpi::kNoRequest;
  Network::Sizes sends, takes;
  std::vector<mpi::Offset> from, to;
};

std::vector<mpi::Offset> offsets(const Network::Sizes& sizes) {
  std::vector<mpi::Offset> at(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), at.begin(), mpi::Offset{0});
  return at;
}

template <typename F>
Network::Begun begin(const char* what, F&& call) {
  auto made = std::make_unique<MpiTransfer>();
  const std::lock_guard guard(mpi::mutex());
  mpi::check(call(mpi::api(), *made), what);
  return made;
}

}  // namespace

MpiNetwork::MpiNetwork(const std::vector<int>& ranks, int tag, bool is_world) {
  const std::lock_guard guard(mpi::mutex());
  const mpi::Api& api = mpi::api();
  mpi::Group all, some;
  mpi::check(api.comm_group(mpi::kWorld, &all), "naming a group");
  mpi::check(api.group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some), "naming a group");
  mpi::Comm& made = is_world ? farewell_ : comm_;
  const int status = api.create(mpi::kWorld, some, tag, &made);
  api.group_free(&some);
  api.group_free(&all);
  mpi::check(status, "making a group");
  api.set_errors(made, mpi::kReturnErrors);
}

Network::Begun MpiNetwork::gather(const char* in, int64_t bytes, char* out, const Sizes& each) {
  return begin("an all-gather", [&](const mpi::Api& api, MpiTransfer& t) {
    t.takes = each, t.to = offsets(each);
    return api.all_gather(in, bytes, mpi::kByte, out, t.takes.data(), t.to.data(), mpi::kByte, comm_, &t.request);
  });
}

Network::Begun MpiNetwork::exchange(const char* in, const Sizes& sends, const Sizes& sends_at, char* out,
                                    const Sizes& takes) {
  return begin("an all-to-all", [&](const mpi::Api& api, MpiTransfer& t) {
    t.sends = sends, t.takes = takes, t.to = offsets(takes);
    t.from.assign(sends_at.begin(), sends_at.end());
    return api.all_to_all(in, t.sends.data(), t.from.data(), mpi::kByte, out, t.takes.data(), t.to.data(), mpi::kByte,
                          comm_, &t.request);
  });
}

Network::Begun MpiNetwork::broadcast(char* data, int64_t bytes, int root) {
  return begin("a broadcast", [&](const mpi::Api& api, MpiTransfer& t) {
    return api.broadcast(data, bytes, mpi::kByte, root, comm_, &t.request);
  });
}

Network::Begun MpiNetwork::send(const char* data, int64_t bytes, int to, int tag) {
  return begin("a message", [&](const mpi::Api& api, MpiTransfer& t) {
    return api.send(data, bytes, mpi::kByte, to, tag, comm_, &t.request);
  });
}

Network::Begun MpiNetwork::receive(char* data, int64_t bytes, int from, int tag) {
  return begin("a message", [&](const mpi::Api& api, MpiTransfer& t) {
    return api.receive(data, bytes, mpi::kByte, from, tag, comm_, &t.request);
  });
}

// They meet in a group of its own, as others may still be in a collective.
Network::Begun MpiNetwork::farewell() {
  if (!farewell_) return nullptr;
  return begin("a barrier", [&](const mpi::Api& api, MpiTransfer& t) { return api.barrier(farewell_, &t.request); });
}

}  // namespace tandem::collectives
