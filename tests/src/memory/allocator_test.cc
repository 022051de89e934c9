// The allocator: alignment, classes, reuse, exact counts, limits, and many threads at once.
// links: src/memory/allocator.cc src/memory/arenas.cc src/memory/large_blocks.cc src/memory/system.cc src/memory/shared_heap.cc
#include "memory/allocator.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "check.h"

using namespace tandem;

#define EXPECT(condition)                                                  \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (0)

struct Block {
  unsigned char* data;
  size_t bytes, capacity;
  unsigned char mark;
};

static Block take(size_t bytes, unsigned char mark) {
  Block block{nullptr, bytes, 0, mark};
  block.data = static_cast<unsigned char*>(allocate(bytes, &block.capacity));
  EXPECT(block.capacity >= bytes);
  EXPECT(reinterpret_cast<uintptr_t>(block.data) % 64 == 0);
  if (bytes) block.data[0] = block.data[bytes / 2] = block.data[bytes - 1] = mark;
  return block;
}

static void drop(const Block& block) {
  if (block.bytes) {
    EXPECT(block.data[0] == block.mark && block.data[block.bytes / 2] == block.mark);
    EXPECT(block.data[block.bytes - 1] == block.mark);
  }
  deallocate(block.data, block.capacity);
}

static void every_size() {
  for (size_t bytes : {0, 1, 63, 64, 65, 512, 513, 4095, 4096, 32767, 32768, 32769, 100000, 3000000})
    drop(take(bytes, 7));
  size_t waste = 0;
  for (size_t bytes = 512; bytes < 40000; bytes += 61) {
    Block block = take(bytes, 1);
    waste = std::max(waste, (block.capacity - bytes) * 100 / bytes);
    drop(block);
  }
  EXPECT(waste <= 25);
  EXPECT(memory_stats().live_bytes == 0 && memory_stats().live_blocks == 0);
}

static void freed_blocks_come_back() {
  for (size_t bytes : {size_t{100}, size_t{50000}, size_t{5} << 20}) {
    Block first = take(bytes, 1);
    drop(first);
    int64_t before = memory_stats().system_allocations;
    Block second = take(bytes, 2);
    EXPECT(second.data == first.data);
    EXPECT(memory_stats().system_allocations == before);
    drop(second);
  }
  Block large = take(8 << 20, 1);
  drop(large);
  Block most = take(7 << 20, 1), rest = take(1 << 20, 2), small = take(100 << 10, 3);
  EXPECT(most.data == large.data && rest.data == large.data + (7 << 20));  // the block is split
  drop(most);
  drop(rest);
  Block whole = take(8 << 20, 1);
  EXPECT(whole.data == large.data);  // and joined again
  drop(whole);
  Block tiny = take(200 << 10, 1);
  EXPECT(tiny.data != large.data);  // less than a megabyte does not split
  drop(tiny);
  drop(small);
}

static void large_blocks_split_and_join_as_they_come() {
  empty_cache();
  std::mt19937 random(7);
  std::vector<Block> blocks;
  for (int i = 0; i < 400; ++i) {
    if (blocks.size() > 20 || (blocks.size() && random() % 2)) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      drop(blocks.back());
      blocks.pop_back();
    } else {
      blocks.push_back(take((size_t{1} << 20) + random() % (5 << 20), static_cast<unsigned char>(random())));
    }
  }
  int64_t peak = memory_stats().peak_bytes;
  EXPECT(memory_stats().reserved_bytes < peak + peak / 2);  // kept apart by size it would be far more
  for (Block& block : blocks) drop(block);
  empty_cache();
  EXPECT(memory_stats().reserved_bytes == 0);
}

static void the_cache_can_be_emptied() {
  std::vector<Block> blocks;
  for (int i = 0; i < 5000; ++i) blocks.push_back(take(1 + i * 37 % 20000, i & 255));
  for (Block& block : blocks) drop(block);
  EXPECT(memory_stats().reserved_bytes > 0);
  empty_cache();
  EXPECT(memory_stats().reserved_bytes == 0 && memory_stats().live_bytes == 0);
  EXPECT(memory_stats().system_allocations == memory_stats().system_frees);
}

static void limits_hold() {
  set_memory_limit(16 << 20);
  Block cached = take(10 << 20, 1);
  drop(cached);
  drop(take(14 << 20, 1));  // makes room by giving the cached block back
  bool refused = false;
  try {
    take(17 << 20, 1);
  } catch (const Error& error) {
    refused = error.kind == ErrorKind::Memory && std::strstr(error.what(), "tried to allocate 17.00 MiB");
  }
  EXPECT(refused);
  set_memory_limit(0);
  for (size_t absurd : {SIZE_MAX, SIZE_MAX / 2, size_t{1} << 50}) {
    refused = false;
    try {
      size_t capacity;
      allocate(absurd, &capacity);
    } catch (const Error&) {
      refused = true;
    }
    EXPECT(refused);
  }
}

// Sizes that grow step by step must not leave a cached block of each size behind.
static void the_cache_does_not_grow_without_bound() {
  for (size_t mib = 10; mib < 200; mib += 10) drop(take(mib << 20, 1));
  EXPECT(memory_stats().reserved_bytes <= (int64_t{256} + 2 * 200) << 20);
  empty_cache();
}

static void many_threads() {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      std::mt19937 random(t);
      std::vector<Block> mine;
      for (int i = 0; i < 20000; ++i) {
        if (mine.size() > 50 || (mine.size() && random() % 2)) {
          std::swap(mine[random() % mine.size()], mine.back());
          drop(mine.back());
          mine.pop_back();
        } else {
          size_t bytes = random() % 100 ? random() % 3000 : random() % 200000;
          mine.push_back(take(bytes, static_cast<unsigned char>(random())));
        }
        if (i % 5000 == 4999) empty_cache();
      }
      for (Block& block : mine) drop(block);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT(memory_stats().live_bytes == 0 && memory_stats().live_blocks == 0);
}

int main() {
  every_size();
  freed_blocks_come_back();
  large_blocks_split_and_join_as_they_come();
  the_cache_can_be_emptied();
  limits_hold();
  the_cache_does_not_grow_without_bound();
  many_threads();
  reset_peak_memory();
  EXPECT(memory_stats().peak_bytes == 0);
  return 0;
}
