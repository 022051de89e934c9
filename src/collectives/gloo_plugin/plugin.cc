// What calls Gloo: connections of one rank to all others, and bytes sent and received over them.
//
// Gloo's waits end by an error that closes all connections when their time is over. So waits have no end here, and a
// thread wakes those who wait now and then, that they may look around.
#include "plugin.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr auto kTurn = std::chrono::milliseconds(10);
constexpr auto kNoEnd = std::chrono::hours(24 * 365);
constexpr auto kConnect = std::chrono::seconds(60);

class Store : public gloo::rendezvous::Store {
 public:
  explicit Store(const TandemGlooStore& calls) : calls_(calls) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    if (calls_.set(calls_.self, key.c_str(), data.data(), data.size())) throw std::runtime_error("the store is gone");
  }

  std::vector<char> get(const std::string& key) override {
    std::vector<char> found;
    const auto take = [](void* to, const char* value, size_t bytes) {
      static_cast<std::vector<char>*>(to)->assign(value, value + bytes);
    };
    if (calls_.get(calls_.self, key.c_str(), &found, take)) throw std::runtime_error("the store has no " + key);
    return found;
  }

  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

 private:
  const TandemGlooStore calls_;
};

struct Move;

struct Connections {
  std::shared_ptr<gloo::rendezvous::Context> context;
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::set<Move*> waiting;
  bool ends = false;
  std::thread waker;

  void wake();
};

struct Move {
  Connections* of;
  bool sends;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
};

void Connections::wake() {
  std::unique_lock lock(mutex);
  while (!ends) {
    changed.wait(lock, [&] { return ends || !waiting.empty(); });
    changed.wait_for(lock, kTurn, [&] { return ends; });
    for (Move* move : waiting) move->sends ? move->buffer->abortWaitSend() : move->buffer->abortWaitRecv();
  }
}

void tell(const char* text, char* why, size_t room) {
  std::snprintf(why, room, "%s", text);
}

}  // namespace

#define VISIBLE extern "C" __attribute__((visibility("default")))

VISIBLE void* tandem_gloo_open(int rank, int size, const char* address, const char* place, const TandemGlooStore* calls,
                               char* why, size_t room) {
  try {
    gloo::transport::tcp::attr where;
    where.hostname = *place ? "" : address;
    where.iface = place;
    auto device = gloo::transport::tcp::CreateDevice(where);
    Store store(*calls);
    auto made = std::make_unique<Connections>();
    made->context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    made->context->setTimeout(kConnect);
    made->context->connectFullMesh(store, device);
    made->waker = std::thread([c = made.get()] { c->wake(); });
    return made.release();
  } catch (const std::exception& error) {
    tell(error.what(), why, room);
    return nullptr;
  }
}

VISIBLE void tandem_gloo_close(void* connections) {
  auto* c = static_cast<Connections*>(connections);
  {
    const std::lock_guard guard(c->mutex);
    c->ends = true;
  }
  c->changed.notify_all();
  c->waker.join();
  delete c;
}

VISIBLE void* tandem_gloo_move(void* connections, int sends, void* data, size_t bytes, int other, uint64_t slot,
                               char* why, size_t room) {
  auto* c = static_cast<Connections*>(connections);
  try {
    auto made = std::make_unique<Move>(Move{c, sends != 0, c->context->createUnboundBuffer(data, bytes)});
    sends ? made->buffer->send(other, slot) : made->buffer->recv(other, slot);
    return made.release();
  } catch (const std::exception& error) {
    tell(error.what(), why, room);
    return nullptr;
  }
}

VISIBLE int tandem_gloo_wait(void* move, char* why, size_t room) {
  auto* m = static_cast<Move*>(move);
  {
    const std::lock_guard guard(m->of->mutex);
    m->of->waiting.insert(m);
    if (m->of->waiting.size() == 1) m->of->changed.notify_all();
  }
  int found = -1;
  try {
    found = m->sends ? m->buffer->waitSend(kNoEnd) : m->buffer->waitRecv(kNoEnd);
  } catch (const std::exception& error) {
    tell(error.what(), why, room);
  }
  const std::lock_guard guard(m->of->mutex);
  m->of->waiting.erase(m);
  return found;
}

VISIBLE void tandem_gloo_forget(void* move) {
  delete static_cast<Move*>(move);
}
