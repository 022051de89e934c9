#include "program/preload.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace tandem {
namespace {

std::mutex mutex;  // guards loader and begun
std::thread* loader = nullptr;
bool begun = false;

}  // namespace

void finish_preload() {
  std::lock_guard lock(mutex);
  if (!loader) return;
  loader->join();
  delete loader;
  loader = nullptr;
}

void preload(std::string path) {
  std::lock_guard lock(mutex);
  if (begun) return;
  begun = true;
  try {
    loader = new std::thread([path = std::move(path)] { dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); });
  } catch (const std::system_error&) {  // no more threads: then it is loaded when needed
    return;
  }
  pthread_atfork(finish_preload, nullptr, nullptr);
  std::atexit(finish_preload);
}

}  // namespace tandem
