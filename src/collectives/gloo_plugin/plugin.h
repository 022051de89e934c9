// The functions of the library that calls Gloo. Plain C, as it may be built by another compiler than the rest.
#pragma once
#include <stddef.h>
#include <stdint.h>

extern "C" {

struct TandemGlooStore {
  void* self;
  // 0: done. `get` waits until the key is there, and gives the value's bytes to `take`.
  int (*set)(void* self, const char* key, const char* value, size_t bytes);
  int (*get)(void* self, const char* key, void* to, void (*take)(void* to, const char* value, size_t bytes));
};

// Null: `why` says so, in at most `room` bytes.
typedef void* (*TandemGlooOpen)(int rank, int size, const char* address, const char* place, const TandemGlooStore*,
                                char* why, size_t room);
typedef void (*TandemGlooClose)(void* connections);
typedef void* (*TandemGlooMove)(void* connections, int sends, void* data, size_t bytes, int other, uint64_t slot,
                                char* why, size_t room);
// 1: it is done; 0: not yet, after some milliseconds; -1: it failed.
typedef int (*TandemGlooWait)(void* move, char* why, size_t room);
typedef void (*TandemGlooForget)(void* move);
}
