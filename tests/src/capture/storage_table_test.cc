// Chains of numbers with hashes alike, the last first, however many there are.
// links: src/fork_guard.cc
#include "capture/storage_table.h"

#include <cstdio>
#include <cstdlib>

using namespace tandem;

#define EXPECT(condition)                                                  \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (0)

int main() {
  HashChains chains;
  for (int round = 0; round < 2; ++round) {
    EXPECT(chains.first(5) == -1);
    for (int32_t i = 0; i < 5000; ++i) chains.add(static_cast<uint64_t>(i % 2500) * 1024);  // all in few slots
    for (int32_t i = 0; i < 2500; ++i) {
      const uint64_t hash = static_cast<uint64_t>(i) * 1024;
      EXPECT(chains.first(hash) == 2500 + i);
      EXPECT(chains.after(2500 + i) == i);
      EXPECT(chains.after(i) == -1);
    }
    chains.clear();
  }
  return 0;
}
