// Memory to and from files, with checksums on the way. None of it needs the GIL.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem {

struct Block {
  char* data = nullptr;
  size_t bytes = 0;
  int64_t offset = 0;  // in the file
  uint32_t crc = 0;    // result
};

// Each returns 0, or errno; reading returns kShortFile where the file ends too early.
constexpr int kShortFile = -1;
// flush: have the disk begin at once, while the rest is copied, instead of when somebody waits for it.
int write_blocks(int fd, std::vector<Block>& blocks, bool flush);
int read_blocks(int fd, std::vector<Block>& blocks);  // on all threads

void checksum_blocks(std::vector<Block>& blocks);  // on all threads

}  // namespace tandem
