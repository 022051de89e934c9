#include "files/transfer.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "device/parallel.h"
#include "files/crc32c.h"

namespace tandem {
namespace {

// Small enough to stay in a core's cache between the checksum and the copy of the system call.
constexpr size_t kPiece = size_t{256} << 10;

struct Piece {
  size_t block, start, bytes;
  uint32_t crc = 0;
};

std::vector<Piece> split(const std::vector<Block>& blocks) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < blocks.size(); ++i)
    for (size_t start = 0; start < blocks[i].bytes; start += kPiece)
      pieces.push_back({i, start, std::min(kPiece, blocks[i].bytes - start)});
  return pieces;
}

void join(const std::vector<Piece>& pieces, std::vector<Block>& blocks) {
  for (Block& block : blocks) block.crc = 0;
  for (const Piece& piece : pieces)
    blocks[piece.block].crc = crc32c_combine(blocks[piece.block].crc, piece.crc, piece.bytes);
}

int write_all(int fd, const char* data, size_t bytes, int64_t offset) {
  while (bytes > 0) {
    ssize_t done = pwrite(fd, data, bytes, offset);
    if (done < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    if (done == 0) return EIO;
    data += done;
    bytes -= static_cast<size_t>(done);
    offset += done;
  }
  return 0;
}

int read_all(int fd, char* data, size_t bytes, int64_t offset) {
  while (bytes > 0) {
    ssize_t done = pread(fd, data, bytes, offset);
    if (done < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    if (done == 0) return kShortFile;
    data += done;
    bytes -= static_cast<size_t>(done);
    offset += done;
  }
  return 0;
}

}  // namespace

// One thread: writers of one file wait for each other in the kernel anyway, and training may need the other cores.
int write_blocks(int fd, std::vector<Block>& blocks) {
  for (Block& block : blocks) {
    block.crc = 0;
    for (size_t start = 0; start < block.bytes; start += kPiece) {
      size_t bytes = std::min(kPiece, block.bytes - start);
      block.crc = crc32c(block.data + start, bytes, block.crc);
      if (int error = write_all(fd, block.data + start, bytes, block.offset + static_cast<int64_t>(start)))
        return error;
    }
  }
  return 0;
}

int read_blocks(int fd, std::vector<Block>& blocks) {
  std::vector<Piece> pieces = split(blocks);
  std::atomic<int> failed{0};
  parallel_for(static_cast<int64_t>(pieces.size()), 1e5, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end && !failed.load(std::memory_order_relaxed); ++i) {
      Piece& piece = pieces[i];
      const Block& block = blocks[piece.block];
      char* target = block.data + piece.start;
      if (int error = read_all(fd, target, piece.bytes, block.offset + static_cast<int64_t>(piece.start)))
        failed = error;
      else
        piece.crc = crc32c(target, piece.bytes);
    }
  });
  join(pieces, blocks);
  return failed;
}

void checksum_blocks(std::vector<Block>& blocks) {
  std::vector<Piece> pieces = split(blocks);
  parallel_for(static_cast<int64_t>(pieces.size()), 5e4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      pieces[i].crc = crc32c(blocks[pieces[i].block].data + pieces[i].start, pieces[i].bytes);
  });
  join(pieces, blocks);
}

}  // namespace tandem
