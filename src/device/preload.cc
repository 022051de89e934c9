#include "device/preload.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "fork_guard.h"

namespace tandem {
namespace {

std::mutex mutex;  // guards threads
ForkGuard fork_threads(mutex);
auto* threads = new std::vector<std::thread>();

}  // namespace

void finish_preload() {
  std::lock_guard lock(mutex);
  for (std::thread& thread : *threads) thread.join();
  threads->clear();
}

void run_beside(std::function<void()> work) {
  std::lock_guard lock(mutex);
  try {
    threads->emplace_back(std::move(work));
  } catch (const std::system_error&) {  // no more threads: then it is done when needed
    return;
  }
  static const int registered = (pthread_atfork(finish_preload, nullptr, nullptr), std::atexit(finish_preload));
  static_cast<void>(registered);
}

void preload(std::string path) {
  static std::once_flag begun;
  std::call_once(begun, [&] { run_beside([path = std::move(path)] { dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); }); });
}

}  // namespace tandem
