#include "files/transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "device/parallel.h"
#include "files/crc32c.h"

namespace tandem {
namespace {

constexpr size_t kStep = size_t{1} << 20;         // small enough to stay in the cache from reading to checksum
constexpr size_t kReadPiece = size_t{16} << 20;   // what a thread reads at a time: long runs, for the disk
constexpr size_t kWritePiece = size_t{32} << 20;  // large writes cost the system less

struct Piece {
  size_t block, start, bytes;
  uint32_t crc = 0;
};

std::vector<Piece> split(const std::vector<Block>& blocks) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < blocks.size(); ++i)
    for (size_t start = 0; start < blocks[i].bytes; start += kReadPiece)
      pieces.push_back({i, start, std::min(kReadPiece, blocks[i].bytes - start)});
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

// Space for all blocks at once: the system then has none to find and to account for page by page (a quarter of the time
// of writing to the page cache), and a disk that is too full says so before anything is written. Not all file systems
// can.
int reserve(int fd, const std::vector<Block>& blocks) {
#ifdef FALLOC_FL_KEEP_SIZE
  if (blocks.empty()) return 0;
  int64_t begin = INT64_MAX, end = 0;
  for (const Block& block : blocks) {
    begin = std::min(begin, block.offset);
    end = std::max(end, block.offset + static_cast<int64_t>(block.bytes));
  }
  if (end - begin < static_cast<int64_t>(kStep)) return 0;
  while (fallocate(fd, 0, begin, end - begin)) {
    if (errno == EINTR) continue;
    return errno == ENOSPC ? ENOSPC : 0;
  }
#endif
  return 0;
}

}  // namespace

// One writer: writers of one file wait for each other in the kernel anyway. Checksums are taken by a thread beside it,
// not by the pool, which training may need.
int write_blocks(int fd, std::vector<Block>& blocks, bool flush) {
  if (int error = reserve(fd, blocks)) return error;
  std::atomic<bool> given_up{false};
  std::thread checker([&] {
    for (Block& block : blocks) {
      block.crc = 0;
      for (size_t start = 0; start < block.bytes && !given_up.load(std::memory_order_relaxed); start += kStep)
        block.crc = crc32c(block.data + start, std::min(kStep, block.bytes - start), block.crc);
    }
  });
  int error = 0;
  for (size_t i = 0; i < blocks.size() && !error; ++i) {
    const Block& block = blocks[i];
    for (size_t start = 0; start < block.bytes && !error; start += kWritePiece) {
      size_t bytes = std::min(kWritePiece, block.bytes - start);
      int64_t offset = block.offset + static_cast<int64_t>(start);
      error = write_all(fd, block.data + start, bytes, offset);
#ifdef SYNC_FILE_RANGE_WRITE
      if (flush && !error && bytes >= kStep)
        sync_file_range(fd, offset, static_cast<int64_t>(bytes), SYNC_FILE_RANGE_WRITE);
#endif
    }
  }
  if (error) given_up = true;
  checker.join();
  return error;
}

int read_blocks(int fd, std::vector<Block>& blocks) {
  std::vector<Piece> pieces = split(blocks);
  std::atomic<int> failed{0};
  parallel_for(static_cast<int64_t>(pieces.size()), 1e6, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end && !failed.load(std::memory_order_relaxed); ++i) {
      Piece& piece = pieces[i];
      const Block& block = blocks[piece.block];
      int64_t offset = block.offset + static_cast<int64_t>(piece.start);
      posix_fadvise(fd, offset, static_cast<off_t>(piece.bytes), POSIX_FADV_WILLNEED);  // all of it at once
      for (size_t start = 0; start < piece.bytes; start += kStep) {
        size_t bytes = std::min(kStep, piece.bytes - start);
        char* target = block.data + piece.start + start;
        if (int error = read_all(fd, target, bytes, offset + static_cast<int64_t>(start))) {
          failed = error;
          break;
        }
        piece.crc = crc32c(target, bytes, piece.crc);
      }
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
