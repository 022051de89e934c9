#include "collectives/board.h"

#include <sys/mman.h>

#include <utility>

#include "check.h"

namespace tandem::collectives {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t rounded(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

size_t Board::stages_at(int size) const {
  return rounded(channels_at(size) + static_cast<size_t>(size) * size * sizeof(Channel));
}

size_t Board::bytes_for(int size) const {
  return stages_at(size) + static_cast<size_t>(size) * 2 * kStage + static_cast<size_t>(size) * size * 2 * kChannel;
}

std::shared_ptr<Board> Board::create(int size, bool shared) {
  TD_CHECK(size >= 1);
  if (size > kMostRanks) fail(ErrorKind::Value, "a group of ", size, " ranks; on one host it has at most ", kMostRanks);
  std::shared_ptr<Board> board(new Board);
  board->bytes_ = board->bytes_for(size);
  if (shared) {
    board->memory_ = SharedMemory::create(board->bytes_);
    board->base_ = board->memory_->data();
  } else {  // untouched pages cost nothing here, either
    void* base =
        mmap(nullptr, board->bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) fail(ErrorKind::Memory, "no memory for a group of ", size, " ranks");
    board->base_ = static_cast<char*>(base);
  }
  board->header().size = size;
  return board;
}

std::shared_ptr<Board> Board::attach(int descriptor) {
  std::shared_ptr<Board> board(new Board);
  board->memory_ = SharedMemory::attach(descriptor);
  board->base_ = board->memory_->data();
  board->bytes_ = board->memory_->bytes();
  const int size = board->bytes_ >= sizeof(Header) ? board->header().size : 0;
  if (size < 1 || size > kMostRanks || board->bytes_ != board->bytes_for(size))
    fail(ErrorKind::Value,
         "the memory of this group was made by another version of Tandem\n"
         "  fix: run all ranks with the same installation");
  return board;
}

Board::~Board() {
  if (!memory_ && base_) munmap(base_, bytes_);
}

Channel& Board::channel(int from, int to) const {
  return reinterpret_cast<Channel*>(base_ + channels_at(size()))[from * size() + to];
}

char* Board::stage(int rank, uint32_t phase) const {
  return base_ + stages_at(size()) + (static_cast<size_t>(rank) * 2 + (phase & 1)) * kStage;
}

char* Board::parcel(int from, int to, uint32_t part) const {
  const size_t first = stages_at(size()) + static_cast<size_t>(size()) * 2 * kStage;
  return base_ + first + ((static_cast<size_t>(from) * size() + to) * 2 + (part & 1)) * kChannel;
}

}  // namespace tandem::collectives
