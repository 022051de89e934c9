// What the OpenMP stand-in needs of the thread pool; the runtime connects the two when it loads oneDNN.
#pragma once

struct tandem_openmp_pool {
  int (*max_threads)();
  bool (*in_parallel)();
  int (*begin_team)(int size, void (*prepare)(void*), void (*body)(int index, int size, void*), void* data);
  void (*end_team)(int size);
};
