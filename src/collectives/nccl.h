// NCCL, opened at run time. The declarations are our own; names and numbers are those of its documented C interface.
#pragma once
#include <cstddef>
#include <string>

#include "device/cuda/driver.h"

namespace tandem::collectives::nccl {

using Comm = struct CommTag*;
using cuda::Stream;
struct UniqueId {
  char bytes[128];
};

enum Type { kInt8, kUInt8, kInt32, kUInt32, kInt64, kUInt64, kFloat16, kFloat32, kFloat64, kBFloat16 };
enum Op { kSum, kProduct, kMaximum, kMinimum, kAverage };

struct Api {
  int (*get_version)(int* version);
  int (*get_unique_id)(UniqueId* id);
  int (*init_rank)(Comm* made, int size, UniqueId id, int rank);
  int (*abort)(Comm);
  const char* (*error_string)(int status);
  const char* (*last_error)(Comm);
  int (*group_start)();
  int (*group_end)();
  int (*all_reduce)(const void* from, void* to, size_t count, int type, int op, Comm, Stream);
  int (*reduce)(const void* from, void* to, size_t count, int type, int op, int root, Comm, Stream);
  int (*broadcast)(const void* from, void* to, size_t count, int type, int root, Comm, Stream);
  int (*all_gather)(const void* from, void* to, size_t each, int type, Comm, Stream);
  int (*reduce_scatter)(const void* from, void* to, size_t each, int type, int op, Comm, Stream);
  int (*send)(const void* from, size_t count, int type, int peer, Comm, Stream);
  int (*receive)(void* to, size_t count, int type, int peer, Comm, Stream);
};

// Null if it cannot be opened: `why` says so. The GIL is not held.
const Api* api(std::string* why);

void check(int status, const char* what);  // throws

}  // namespace tandem::collectives::nccl
