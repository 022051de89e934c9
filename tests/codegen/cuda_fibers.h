// The threads of a block as fibers on the CPU, which runs kernels for CUDA devices in tests.
#pragma once
#include <ucontext.h>
#include <cstdlib>
#include <vector>
#define __global__
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static
static int current;
struct Block {
  int x, y;
};
static Block blockIdx, blockDim, gridDim;
struct Tid {
  struct X {
    operator int() const { return current % blockDim.x; }
  } x;
  struct Y {
    operator int() const { return current / blockDim.x; }
  } y;
} threadIdx;
static ucontext_t main_context;
static std::vector<ucontext_t> fibers;
static std::vector<bool> alive;
static void yield() {
  swapcontext(&fibers[current], &main_context);
}
static int NT_;
struct Barrier {
  int count = 0;
  unsigned long long generation = 0;
  void sync(int n) {
    const auto g = generation;
    if (++count == n) {
      count = 0;
      ++generation;
    } else
      while (g == generation) yield();
  }
};
static Barrier block_barrier, warp_barrier[64], group_barrier[16];
static void __syncthreads() {
  block_barrier.sync(NT_);
}
template <class T>
static T __shfl_xor_sync(unsigned, T x, int m) {
  static T exchanged[1024];
  int me = current;
  exchanged[me] = x;
  warp_barrier[me / 32].sync(32);
  T y = exchanged[me ^ m];
  warp_barrier[me / 32].sync(32);
  return y;
}
template <class F>
bool run_block(int nt, F body, int rows = 1) {
  NT_ = nt;
  blockDim = {nt / rows, rows};
  fibers.resize(nt);
  alive.assign(nt, true);
  static std::vector<char*> stacks;
  while ((int)stacks.size() < nt) stacks.push_back((char*)malloc(1 << 16));
  static F* the_body;
  the_body = &body;
  auto entry = +[] {
    (*the_body)();
    alive[current] = false;
  };
  for (int i = 0; i < nt; ++i) {
    getcontext(&fibers[i]);
    fibers[i].uc_stack = {stacks[i], 0, 1 << 16};
    fibers[i].uc_link = &main_context;
    makecontext(&fibers[i], entry, 0);
  }
  int left = nt;
  long rounds = 0;
  while (left) {
    left = 0;
    for (int i = 0; i < nt; ++i)
      if (alive[i]) {
        current = i;
        swapcontext(&main_context, &fibers[i]);
        left += alive[i];
      }
    if (++rounds > 2000000) {
      return false;
    }
  }
  return true;
}
