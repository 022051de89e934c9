#include "collectives/gloo_network.h"

#include <dlfcn.h>

#include <cstring>
#include <numeric>

#include "check.h"
#include "collectives/gloo_plugin/plugin.h"
#include "collectives/parts.h"

namespace tandem::collectives {

struct GlooApi {
  TandemGlooOpen open;
  TandemGlooClose close;
  TandemGlooMove move;
  TandemGlooWait wait;
  TandemGlooForget forget;
};

namespace {

constexpr size_t kText = 512;
constexpr int kBytes = 0;                       // the slot of collectives; those of messages are their tags
constexpr int64_t kDivided = int64_t{1} << 16;  // bytes of a broadcast that all ranks help to spread

template <typename F>
void load(void* library, F& function, const char* name) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (!function) fail(ErrorKind::Distributed, "Gloo: the plugin has no ", name);
}

const GlooApi& open(const std::string& path) {
  static std::mutex mutex;
  static GlooApi* api = nullptr;
  const std::lock_guard guard(mutex);
  if (api) return *api;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(ErrorKind::Distributed, "Gloo: ", dlerror());
  GlooApi found;
  load(library, found.open, "tandem_gloo_open");
  load(library, found.close, "tandem_gloo_close");
  load(library, found.move, "tandem_gloo_move");
  load(library, found.wait, "tandem_gloo_wait");
  load(library, found.forget, "tandem_gloo_forget");
  api = new GlooApi(found);
  return *api;
}

class GlooTransfer : public Transfer {
 public:
  GlooTransfer(const GlooApi& api, void* move) : api_(api), move_(move) {}
  ~GlooTransfer() override { api_.forget(move_); }
  bool wait(double, bool) override {
    char why[kText] = {};
    const int found = api_.wait(move_, why, sizeof why);
    if (found < 0) fail(ErrorKind::Distributed, "Gloo: ", why);
    return found;
  }

 private:
  const GlooApi& api_;
  void* const move_;
};

// Several, and perhaps others that begin when these are done.
class Several : public Transfer {
 public:
  bool wait(double waited, bool moving) override {
    while (!parts.empty()) {
      if (!parts.back()->wait(waited, moving)) return false;
      parts.pop_back();
    }
    if (!then) return true;
    parts.push_back(std::exchange(then, {})());
    return wait(waited, moving);
  }

  std::vector<Network::Begun> parts;
  std::function<Network::Begun()> then;
};

Network::Sizes offsets(const Network::Sizes& sizes) {
  Network::Sizes at(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), at.begin(), int64_t{0});
  return at;
}

}  // namespace

GlooMesh::GlooMesh(const std::string& library, int rank, int size, const std::string& address, const std::string& place,
                   const Set& set, const Get& get)
    : api_(&open(library)) {
  struct Calls {
    const Set& set;
    const Get& get;
    std::string problem;
  } calls{set, get, ""};
  const TandemGlooStore store{
      &calls,
      [](void* self, const char* key, const char* value, size_t bytes) {
        auto* c = static_cast<Calls*>(self);
        try {
          return c->set(key, std::string(value, bytes)), 0;
        } catch (const std::exception& error) {
          return c->problem = error.what(), 1;
        }
      },
      [](void* self, const char* key, void* to, void (*take)(void*, const char*, size_t)) {
        auto* c = static_cast<Calls*>(self);
        try {
          const std::string value = c->get(key);
          return take(to, value.data(), value.size()), 0;
        } catch (const std::exception& error) {
          return c->problem = error.what(), 1;
        }
      },
  };
  char why[kText] = {};
  connections_ = api_->open(rank, size, address.c_str(), place.c_str(), &store, why, sizeof why);
  if (!connections_)
    fail(ErrorKind::Distributed, "Gloo: rank ", rank,
         " cannot reach the others: ", calls.problem.empty() ? why : calls.problem.c_str(),
         "\n  fix: GLOO_SOCKET_IFNAME names the network interface that leads to the other hosts");
}

GlooMesh::~GlooMesh() {
  if (connections_) api_->close(connections_);
}

Network::Begun GlooMesh::send(const char* data, int64_t bytes, int to, uint64_t slot) {
  char why[kText] = {};
  void* made = api_->move(connections_, 1, const_cast<char*>(data), bytes, to, slot, why, sizeof why);
  if (!made) fail(ErrorKind::Distributed, "Gloo: ", why);
  return std::make_unique<GlooTransfer>(*api_, made);
}

Network::Begun GlooMesh::receive(char* data, int64_t bytes, int from, uint64_t slot) {
  char why[kText] = {};
  void* made = api_->move(connections_, 0, data, bytes, from, slot, why, sizeof why);
  if (!made) fail(ErrorKind::Distributed, "Gloo: ", why);
  return std::make_unique<GlooTransfer>(*api_, made);
}

GlooNetwork::GlooNetwork(std::shared_ptr<GlooMesh> mesh, std::vector<int> ranks, int rank, int tag)
    : mesh_(std::move(mesh)), ranks_(std::move(ranks)), rank_(rank), tag_(tag) {}

Network::Begun GlooNetwork::gather(const char* in, int64_t bytes, char* out, const Sizes& each) {
  const Sizes sends(ranks_.size(), bytes), same(ranks_.size(), 0);
  return exchange(in, sends, same, out, each);
}

// Each with all others, beginning with the next one, so that not all send to one rank at once.
Network::Begun GlooNetwork::exchange(const char* in, const Sizes& sends, const Sizes& sends_at, char* out,
                                     const Sizes& takes) {
  auto made = std::make_unique<Several>();
  const Sizes at = offsets(takes);
  const int n = static_cast<int>(ranks_.size());
  if (takes[rank_]) std::memmove(out + at[rank_], in + sends_at[rank_], takes[rank_]);
  for (int i = 1; i < n; ++i) {
    const int from = (rank_ + n - i) % n;
    if (takes[from]) made->parts.push_back(mesh_->receive(out + at[from], takes[from], ranks_[from], slot(kBytes)));
  }
  for (int i = 1; i < n; ++i) {
    const int to = (rank_ + i) % n;
    if (sends[to]) made->parts.push_back(mesh_->send(in + sends_at[to], sends[to], ranks_[to], slot(kBytes)));
  }
  return made;
}

// A large one goes in shares, one to each rank, which gives it to all.
Network::Begun GlooNetwork::broadcast(char* data, int64_t bytes, int root) {
  const int n = static_cast<int>(ranks_.size());
  const bool divided = n > 2 && bytes > kDivided;
  auto made = std::make_unique<Several>();
  if (!bytes) return made;
  Sizes shares(n);
  for (int r = 0; r < n; ++r) {
    const auto [first, last] = share(bytes, r, n);
    shares[r] = last - first;
  }
  const Sizes at = offsets(shares);
  const auto part = [&](int r) { return std::pair{divided ? data + at[r] : data, divided ? shares[r] : bytes}; };
  if (rank_ != root) {
    const auto [to, count] = part(rank_);
    made->parts.push_back(mesh_->receive(to, count, ranks_[root], slot(kBytes)));
  }
  for (int i = 1; rank_ == root && i < n; ++i) {
    const int r = (root + i) % n;
    const auto [from, count] = part(r);
    made->parts.push_back(mesh_->send(from, count, ranks_[r], slot(kBytes)));
  }
  if (divided) made->then = [=, this] { return gather(data + at[rank_], shares[rank_], data, shares); };
  return made;
}

Network::Begun GlooNetwork::send(const char* data, int64_t bytes, int to, int tag) {
  if (!bytes) return std::make_unique<Several>();
  return mesh_->send(data, bytes, ranks_[to], slot(tag));
}

Network::Begun GlooNetwork::receive(char* data, int64_t bytes, int from, int tag) {
  if (!bytes) return std::make_unique<Several>();
  return mesh_->receive(data, bytes, ranks_[from], slot(tag));
}

}  // namespace tandem::collectives
