// Bytes moved by Gloo, over TCP. The library is C++ and has no wheel, so what calls it is a small library of its own
// (gloo_plugin/), which is built where Gloo is found, and opened at run time.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "collectives/network.h"

namespace tandem::collectives {

struct GlooApi;

// The connections of a rank to all others, which its groups share.
class GlooMesh {
 public:
  using Set = std::function<void(const std::string& key, const std::string& value)>;
  using Get = std::function<std::string(const std::string& key)>;  // waits until it is there
  // library: the path of the plugin; address: of this host, as others reach it; place: a network interface, or "".
  // set, get: a store by which ranks find one another, called without the GIL; all of them make it at the same time.
  GlooMesh(const std::string& library, int rank, int size, const std::string& address, const std::string& place,
           const Set& set, const Get& get);
  ~GlooMesh();
  GlooMesh(const GlooMesh&) = delete;
  Network::Begun send(const char* data, int64_t bytes, int to, uint64_t slot);
  Network::Begun receive(char* data, int64_t bytes, int from, uint64_t slot);

 private:
  const GlooApi* api_;
  void* connections_ = nullptr;
};

class GlooNetwork : public Network {
 public:
  GlooNetwork(std::shared_ptr<GlooMesh> mesh, std::vector<int> ranks, int rank, int tag);
  Begun gather(const char* in, int64_t bytes, char* out, const Sizes& each) override;
  Begun exchange(const char* in, const Sizes& sends, const Sizes& sends_at, char* out, const Sizes& takes) override;
  Begun broadcast(char* data, int64_t bytes, int root) override;
  Begun send(const char* data, int64_t bytes, int to, int tag) override;
  Begun receive(char* data, int64_t bytes, int from, int tag) override;
  Begun farewell() override { return nullptr; }

 private:
  uint64_t slot(int tag) const { return (static_cast<uint64_t>(tag_) << 8) + static_cast<uint64_t>(tag); }

  const std::shared_ptr<GlooMesh> mesh_;
  const std::vector<int> ranks_;
  const int rank_, tag_;
};

}  // namespace tandem::collectives
