// A stand-in for the driver (libcuda.so.1), for tests on machines without a device: memory is host memory, copies happen at once, and
// launches do nothing but are counted. What the runtime does around kernels can be tested so, and kernels be compiled.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long Address;
enum { kOutOfMemory = 2, kInvalid = 1 };

static size_t allocated;  // bytes of device memory
static long long launches, graph_launches, recorded, modules, early_launches, fills_replaced, reads;
static long long uploads, copies, fills;  // host to device, on the device, and of zeros
static __thread int capturing;
static char log_text[1 << 16];  // names of the functions that were launched
static size_t logged;

static size_t total(void) {  // what the device has; STAND_IN_GIB says how much, for whole models
  static size_t bytes;
  const char* asked = getenv("STAND_IN_GIB");
  if (!bytes) bytes = (asked ? strtoul(asked, NULL, 10) : 1) << 30;
  return bytes;
}

// What tests ask for.
void stand_in_counts(long long* out) {
  out[0] = launches, out[1] = graph_launches, out[2] = recorded, out[3] = modules, out[4] = (long long)allocated;
  out[5] = early_launches, out[6] = fills_replaced, out[7] = reads;
}
void stand_in_moves(long long* out) { out[0] = uploads, out[1] = copies, out[2] = fills; }
const char* stand_in_log(void) { return log_text; }
static int failing;
void stand_in_fail(int status) { failing = status; }  // the next launch does
// The next launch that checks indices, or the next launch of a graph with one, complains of this index: see Report in
// src/device/cuda/launches.h.
static long long *report, complaint[3], checked = -1;
static int complains;
void stand_in_complain(long long value, long long bound, long long axis) {
  complains = 1, complaint[0] = value, complaint[1] = bound, complaint[2] = axis;
}
static void complain(void) {
  if (!complains || checked < 0) return;
  complains = 0, report[0] = report[5] = 1, report[1] = checked;
  memcpy(report + 2, complaint, sizeof complaint);
}
static void check(void** arguments) {  // a kernel's one argument: words, among them the report's address and a number
  if (!report || !arguments) return;
  const long long* words = arguments[0];
  for (int k = 0; k < 24; ++k)
    if (words[k] == (long long)report) {
      checked = words[k + 1];
      if (!capturing) complain();
      return;
    }
}
static void take_time(void) {  // as many microseconds as STAND_IN_LAUNCH says
  static long micros = -1;
  if (micros < 0) micros = getenv("STAND_IN_LAUNCH") ? atol(getenv("STAND_IN_LAUNCH")) : 0;
  if (!micros) return;
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  const long long until = t.tv_sec * 1000000000ll + t.tv_nsec + 1000 * micros;
  do clock_gettime(CLOCK_MONOTONIC, &t);
  while (t.tv_sec * 1000000000ll + t.tv_nsec < until);
}
void stand_in_clear(void) { log_text[logged = 0] = 0, launches = graph_launches = recorded = 0; }

static pid_t process;  // that initialised it; a forked child gets CUDA_ERROR_NOT_INITIALIZED
static int forked(void) { return getpid() != process ? 3 : 0; }
int cuInit(unsigned f) { return process = getpid(), 0; }
int cuDriverGetVersion(int* v) { return *v = 12080, 0; }
int cuGetErrorName(int s, const char** t) { return *t = "STAND_IN", 0; }
int cuGetErrorString(int s, const char** t) { return *t = "an error of the stand-in", 0; }
int cuDeviceGetCount(int* n) { return *n = 1, 0; }
int cuDeviceGet(int* d, int i) { return *d = i, 0; }
int cuDeviceGetName(char* name, int size, int d) { return snprintf(name, size, "stand-in"), 0; }
int cuDeviceGetAttribute(int* v, int attribute, int d) {
  *v = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 132 : attribute == 102 ? 1 : 0;
  return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int d) { return *bytes = total(), 0; }
int cuDevicePrimaryCtxRetain(void** c, int d) { return *c = (void*)1, 0; }
int cuCtxSetCurrent(void* c) { return 0; }
int cuCtxSynchronize(void) { return 0; }

// -- memory; sizes are kept in front of it

int cuMemAlloc_v2(Address* a, size_t bytes) {  // pages that nobody touches cost nothing: whole models fit
  if (allocated + bytes > total()) return kOutOfMemory;
  char* p = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return kOutOfMemory;
  *(size_t*)p = bytes;
  allocated += bytes;
  return *a = (Address)(p + 4096), 0;
}
int cuMemFree_v2(Address a) {
  char* p = (char*)a - 4096;
  size_t bytes = *(size_t*)p;
  allocated -= bytes;
  return munmap(p, bytes + 4096) ? kInvalid : 0;
}
int cuMemAddressReserve(Address* a, size_t bytes, size_t alignment, Address wanted, unsigned long long flags) {
  void* p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? kOutOfMemory : (*a = (Address)p, 0);
}
int cuMemAddressFree(Address a, size_t bytes) { return munmap((void*)a, bytes) ? kInvalid : 0; }
int cuMemCreate(unsigned long long* handle, size_t bytes, const void* properties, unsigned long long flags) {
  if (bytes % (2 << 20)) return kInvalid;
  if (allocated + bytes > total()) return kOutOfMemory;
  allocated += bytes;
  size_t* size = malloc(sizeof *size);
  *size = bytes;
  return *handle = (unsigned long long)size, 0;
}
int cuMemRelease(unsigned long long handle) {
  allocated -= *(size_t*)handle;
  free((void*)handle);
  return 0;
}
int cuMemMap(Address a, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags) {
  return bytes == *(size_t*)handle ? 0 : kInvalid;
}
int cuMemUnmap(Address a, size_t bytes) {
  madvise((void*)a, bytes, MADV_DONTNEED);
  return mprotect((void*)a, bytes, PROT_NONE) ? kInvalid : 0;
}
int cuMemSetAccess(Address a, size_t bytes, const void* access, size_t count) {
  return mprotect((void*)a, bytes, PROT_READ | PROT_WRITE) ? kInvalid : 0;
}
int cuMemGetInfo_v2(size_t* available, size_t* all) { return *available = total() - allocated, *all = total(), 0; }
int cuMemHostAlloc(void** p, size_t bytes, unsigned flags) {
  *p = calloc(1, bytes);
  if (bytes == 7 * sizeof(long long)) report = *p;
  return *p ? 0 : kOutOfMemory;
}
int cuMemFreeHost(void* p) { return free(p), 0; }
int cuMemHostGetDevicePointer_v2(Address* a, void* p, unsigned flags) { return *a = (Address)p, 0; }
int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t n, void* s) {
  ++uploads;
  return memcpy((void*)to, from, n), forked();
}
int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t n, void* s) {
  ++reads;
  return memcpy(to, (void*)from, n), forked();
}
int cuMemcpyDtoDAsync_v2(Address to, Address from, size_t n, void* s) {
  ++copies;
  return memmove((void*)to, (void*)from, n), 0;
}
int cuMemcpyAsync(Address to, Address from, size_t n, void* s) { return memmove((void*)to, (void*)from, n), 0; }
int cuMemsetD8Async(Address to, unsigned char v, size_t n, void* s) {
  ++fills;
  return memset((void*)to, v, n), 0;
}

// -- streams and events

int cuStreamCreateWithPriority(void** s, unsigned flags, int priority) { return *s = calloc(1, 8), 0; }
int cuStreamDestroy_v2(void* s) { return free(s), 0; }
int cuStreamSynchronize(void* s) { return capturing ? 900 : 0; }
int cuStreamQuery(void* s) { return 0; }
int cuStreamWaitEvent(void* s, void* e, unsigned flags) { return 0; }
int cuEventCreate(void** e, unsigned flags) { return *e = calloc(1, sizeof(double)), 0; }
int cuEventDestroy_v2(void* e) { return free(e), 0; }
int cuEventRecord(void* e, void* s) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  *(double*)e = t.tv_sec * 1e3 + t.tv_nsec / 1e6;
  return 0;
}
int cuEventQuery(void* e) { return 0; }
int cuEventSynchronize(void* e) { return 0; }
int cuEventElapsedTime(float* ms, void* a, void* b) { return *ms = (float)(*(double*)b - *(double*)a), 0; }

// -- kernels

int cuModuleLoadData(void** m, const void* image) { return ++modules, *m = (void*)image, 0; }
int cuModuleGetFunction(void** f, void* m, const char* name) { return *f = strdup(name), 0; }
int cuFuncSetAttribute(void* f, int attribute, int value) { return 0; }
int cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void* s, void** arguments, void** extra) {
  if (gx == 0 || bx * by * bz > 1024) return kInvalid;
  ++*(capturing ? &recorded : &launches);
  check(arguments);
  size_t length = strlen(f);
  if (logged + length + 2 < sizeof log_text) {
    memcpy(log_text + logged, f, length);
    memcpy(log_text + logged + length, "\n", 2);
    logged += length + 1;
  }
  return 0;
}
struct config {  // CUlaunchConfig
  unsigned grid[3], block[3], shared;
  void* stream;
  const int* attributes;
  unsigned count;
};
int cuLaunchKernelEx(const struct config* c, void* f, void** arguments, void** extra) {
  if (c->count != 1 || c->attributes[0] != 6 || c->attributes[2] != 1) return kInvalid;
  take_time();
  if (failing) {
    const int status = failing;
    return failing = 0, status;
  }
  ++early_launches;
  return cuLaunchKernel(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared,
                        c->stream, arguments, extra);
}
// A recorded graph: what others ask to be done at each launch (nccl.c), if anything.
enum { kRow = 0x726f77, kCaptured = 0x636170 };
struct captured {
  int magic, count;
  int (*calls[64])(void*);
  void* arguments[64];
};
static __thread struct captured* noted;
int stand_in_capturing(void) { return capturing; }
void stand_in_note(int (*call)(void*), void* argument) {
  if (!noted) noted = calloc(1, sizeof *noted), noted->magic = kCaptured;
  noted->calls[noted->count] = call, noted->arguments[noted->count++] = argument;
}
int cuStreamBeginCapture_v2(void* s, int mode) { return capturing = 1, noted = NULL, 0; }
int cuStreamEndCapture(void* s, void** g) { return capturing = 0, *g = noted ? noted : (void*)1, 0; }
int cuStreamGetCaptureInfo_v2(void* s, int* state, unsigned long long* id, void** g, const void*** nodes, size_t* count) {
  static const void* node = (void*)1;
  return *state = capturing, *nodes = &node, *count = 1, 0;
}
// Graphs that are made node by node: rows of kernels, the name of each.
struct row {
  int magic, count;
  char* names[64];
};
static int is_row(void* g) { return (size_t)g > 4096 && *(int*)g == kRow; }
static int is_captured(void* g) { return (size_t)g > 4096 && *(int*)g == kCaptured; }
int cuGraphCreate(void** g, unsigned flags) {
  struct row* r = calloc(1, sizeof *r);
  r->magic = kRow;
  return *g = r, 0;
}
int cuGraphInstantiateWithFlags(void** x, void* g, unsigned long long flags) {
  return *x = is_row(g) || is_captured(g) ? g : (void*)1, 0;
}
int cuGraphLaunch(void* x, void* s) {
  ++graph_launches;
  take_time();
  complain();
  if (is_captured(x))
    for (int k = 0; k < ((struct captured*)x)->count; ++k)
      if (((struct captured*)x)->calls[k](((struct captured*)x)->arguments[k])) return kInvalid;
  if (is_row(x))
    for (int k = 0; k < ((struct row*)x)->count; ++k)
      cuLaunchKernel(((struct row*)x)->names[k], 1, 1, 1, 1, 1, 1, 0, s, 0, 0);
  return 0;
}
int cuGraphExecKernelNodeSetParams_v2(void* x, void* node, const void* p) {
  return is_row(x) && strcmp(*(char**)node, *(char**)p) ? kInvalid : 0;
}

// A graph has these nodes: a kernel, a fill of 4 bytes, a kernel, a fill of 1 MB. The one between the kernels is replaced.
static const int node_types[] = {0, 2, 0, 2};
int cuGraphGetNodes(void* g, void** nodes, size_t* count) {
  for (size_t i = 0; nodes && i < 4; ++i) nodes[i] = (void*)(i + 1);
  return *count = 4, 0;
}
int cuGraphNodeGetType(void* node, int* type) { return *type = node_types[(size_t)node - 1], 0; }
struct fill {
  Address to;
  size_t pitch;
  unsigned value, element_size;
  size_t width, height;
};
int cuGraphMemsetNodeGetParams(void* node, struct fill* f) {
  struct fill given = {0x1000, 0, 7, 4, (size_t)node == 2 ? 1 : 1 << 18, 1};
  return *f = given, 0;
}
int cuGraphNodeGetDependencies(void* node, void** nodes, size_t* count) {
  if (nodes) nodes[0] = (void*)1;
  return *count = 1, 0;
}
int cuGraphNodeGetDependentNodes(void* node, void** nodes, size_t* count) {
  if (nodes) nodes[0] = (void*)3;
  return *count = 1, 0;
}
struct node_kernel {
  void* function;
  unsigned grid[3], block[3], shared;
  void** arguments;
};
int cuGraphAddKernelNode_v2(void** node, void* g, void** before, size_t count, const struct node_kernel* k) {
  const unsigned long long* a = k->arguments[0];
  if (is_row(g)) {
    struct row* r = g;
    if (count != (r->count > 0) || (count && before[0] != &r->names[r->count - 1])) return kInvalid;
    r->names[r->count] = k->function;
    return *node = &r->names[r->count++], 0;
  }
  if (strcmp(k->function, "td_fill") || count != 1 || before[0] != (void*)1) return kInvalid;
  if (a[0] != 0x1000 || a[1] != 1 || a[2] != 7 || a[3] != 4 || k->grid[0] != 1 || k->block[0] != 32) return kInvalid;
  return *node = (void*)5, 0;
}
int cuGraphAddDependencies(void* g, void** from, void** to, size_t count) {
  return count == 1 && from[0] == (void*)5 && to[0] == (void*)3 ? 0 : kInvalid;
}
int cuGraphDestroyNode(void* node) { return node == (void*)2 ? (++fills_replaced, 0) : kInvalid; }
int cuGraphDestroy(void* g) { return 0; }
int cuGraphExecDestroy(void* x) { return 0; }
