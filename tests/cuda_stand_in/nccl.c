// A stand-in for NCCL: collectives between threads or processes, through a file that they map. Calls do their work before they
// return, or, while a graph is recorded, each time it is launched (see driver.c).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kMost = 8, kStage = 1 << 20, kInternal = 3, kInvalid = 4, kRemote = 6 };
enum { kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kSend, kReceive };

struct shared {
  atomic_int attached, arrived;
  char stage[kMost][kStage];
};
struct comm {
  struct shared* shared;
  int rank, size, phase;
  atomic_int aborted;
};
struct op {
  int kind, type, op, root;
  const char* from;
  char* to;
  size_t count;
  struct comm* comm;
};
struct batch {
  int count;
  struct op ops[64];
};
struct id {
  char path[128];
};

static __thread int depth;
static __thread struct batch pending;
static atomic_int calls;

static void* driver(const char* name) { return dlsym(dlopen(getenv("TANDEM_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD), name); }
static size_t item(int type) {
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return sizes[type];
}

static int meet(struct comm* c) {
  const int until = ++c->phase * c->size;
  atomic_fetch_add(&c->shared->arrived, 1);
  while (atomic_load(&c->shared->arrived) < until) {
    if (atomic_load(&c->aborted)) return kRemote;
    usleep(50);
  }
  return 0;
}

#define COMBINE(T)                                                                             \
  for (size_t i = 0; i < n; ++i) {                                                             \
    T a = ((T*)to)[i], b = ((const T*)from)[i];                                                \
    ((T*)to)[i] = op == 1 ? a * b : op == 2 ? (a > b ? a : b) : op == 3 ? (a < b ? a : b) : a + b; \
  }                                                                                            \
  return
typedef _Float16 half;
static float wide(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  float f;
  return memcpy(&f, &bits, 4), f;
}
static uint16_t narrow(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
static void combine(char* to, const char* from, size_t n, int type, int op) {
  switch (type) {
    case 0: COMBINE(int8_t);
    case 1: COMBINE(uint8_t);
    case 2: COMBINE(int32_t);
    case 3: COMBINE(uint32_t);
    case 4: COMBINE(int64_t);
    case 5: COMBINE(uint64_t);
    case 6: COMBINE(half);
    case 7: COMBINE(float);
    case 8: COMBINE(double);
    default:
      for (size_t i = 0; i < n; ++i) {
        float a = wide(((uint16_t*)to)[i]), b = wide(((const uint16_t*)from)[i]);
        ((uint16_t*)to)[i] = narrow(op == 1 ? a * b : op == 2 ? (a > b ? a : b) : op == 3 ? (a < b ? a : b) : a + b);
      }
  }
}
static void divide(char* to, size_t n, int type, int by) {
  for (size_t i = 0; i < n; ++i) {
    if (type == 6) ((half*)to)[i] /= by;
    if (type == 7) ((float*)to)[i] /= by;
    if (type == 8) ((double*)to)[i] /= by;
    if (type == 9) ((uint16_t*)to)[i] = narrow(wide(((uint16_t*)to)[i]) / by);
  }
}

static int collective(const struct op* o) {
  struct comm* c = o->comm;
  const size_t size = item(o->type), all = o->kind == kReduceScatter ? o->count * c->size : o->count;
  if (all * size > kStage) return kInvalid;
  memcpy(c->shared->stage[c->rank], o->from, all * size);
  if (meet(c)) return kRemote;
  if (o->kind == kBroadcast) memcpy(o->to, c->shared->stage[o->root], all * size);
  if (o->kind == kAllGather)
    for (int r = 0; r < c->size; ++r) memcpy(o->to + r * all * size, c->shared->stage[r], all * size);
  const int reduces = o->kind == kAllReduce || o->kind == kReduceScatter || (o->kind == kReduce && c->rank == o->root);
  if (reduces) {
    const size_t at = o->kind == kReduceScatter ? c->rank * o->count * size : 0;
    memcpy(o->to, c->shared->stage[0] + at, o->count * size);
    for (int r = 1; r < c->size; ++r) combine(o->to, c->shared->stage[r] + at, o->count, o->type, o->op);
    if (o->op == 4) divide(o->to, o->count, o->type, c->size);
  }
  return meet(c);
}

static int messages(const struct batch* b) {
  struct comm* c = b->ops[0].comm;
  const size_t slot = kStage / kMost;
  for (int i = 0; i < b->count; ++i)
    if (b->ops[i].kind == kSend) memcpy(c->shared->stage[c->rank] + b->ops[i].root * slot, b->ops[i].from, b->ops[i].count);
  if (meet(c)) return kRemote;
  for (int i = 0; i < b->count; ++i)
    if (b->ops[i].kind == kReceive) memcpy(b->ops[i].to, c->shared->stage[b->ops[i].root] + c->rank * slot, b->ops[i].count);
  return meet(c);
}

static int run(const struct batch* b) {
  if (!b->count) return 0;
  if (b->ops[0].kind >= kSend) return messages(b);
  int status = 0;
  for (int i = 0; i < b->count && !status; ++i) status = collective(&b->ops[i]);
  return status;
}
static int replay(void* batch) { return run(batch); }

static int finish(void) {
  struct batch b = pending;
  pending.count = 0;
  const char* dies = getenv("STAND_IN_NCCL_DIES");  // "rank:call": that process is killed in that call
  if (b.count && dies && atoi(dies) == b.ops[0].comm->rank && atomic_fetch_add(&calls, 1) == atoi(strchr(dies, ':') + 1))
    kill(getpid(), SIGKILL);
  int (*capturing)(void) = driver("stand_in_capturing");
  if (!capturing()) return run(&b);
  void (*note)(int (*)(void*), void*) = driver("stand_in_note");
  struct batch* kept = malloc(sizeof b);
  *kept = b;
  return note(replay, kept), 0;
}
static int add(struct op o) {
  if (pending.count == 64) return kInternal;
  pending.ops[pending.count++] = o;
  return depth ? 0 : finish();
}

int ncclGetVersion(int* v) { return *v = 23100, 0; }
int ncclGetUniqueId(struct id* id) {
  snprintf(id->path, sizeof id->path, "/tmp/tandem-stand-in-nccl-%d-%lx", (int)getpid(), (unsigned long)random());
  const int fd = open(id->path, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(struct shared))) return kInternal;
  return close(fd), 0;
}
int ncclCommInitRank(struct comm** made, int size, struct id id, int rank) {
  if (getenv("STAND_IN_NCCL_REFUSES")) return unlink(id.path), kInvalid;  // as older ones, where ranks share a device
  const int fd = open(id.path, O_RDWR);
  if (fd < 0) return kInternal;
  struct comm* c = calloc(1, sizeof *c);
  c->shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  c->rank = rank, c->size = size;
  if (atomic_fetch_add(&c->shared->attached, 1) + 1 == size) unlink(id.path);
  *made = c;
  return meet(c);
}
int ncclCommAbort(struct comm* c) { return atomic_store(&c->aborted, 1), 0; }
const char* ncclGetErrorString(int status) { return "an error of the stand-in"; }
const char* ncclGetLastError(struct comm* c) { return ""; }
int ncclGroupStart(void) { return ++depth, 0; }
int ncclGroupEnd(void) { return --depth ? 0 : finish(); }
int ncclAllReduce(const void* from, void* to, size_t n, int type, int op, struct comm* c, void* s) {
  return add((struct op){kAllReduce, type, op, 0, from, to, n, c});
}
int ncclReduce(const void* from, void* to, size_t n, int type, int op, int root, struct comm* c, void* s) {
  return add((struct op){kReduce, type, op, root, from, to, n, c});
}
int ncclBroadcast(const void* from, void* to, size_t n, int type, int root, struct comm* c, void* s) {
  return add((struct op){kBroadcast, type, 0, root, from, to, n, c});
}
int ncclAllGather(const void* from, void* to, size_t n, int type, struct comm* c, void* s) {
  return add((struct op){kAllGather, type, 0, 0, from, to, n, c});
}
int ncclReduceScatter(const void* from, void* to, size_t n, int type, int op, struct comm* c, void* s) {
  return add((struct op){kReduceScatter, type, op, 0, from, to, n, c});
}
int ncclSend(const void* from, size_t n, int type, int peer, struct comm* c, void* s) {
  return add((struct op){kSend, type, 0, peer, from, NULL, n, c});
}
int ncclRecv(void* to, size_t n, int type, int peer, struct comm* c, void* s) {
  return add((struct op){kReceive, type, 0, peer, NULL, to, n, c});
}
