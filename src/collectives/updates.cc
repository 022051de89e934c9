// What follows an all-reduce, run by whoever reduces a block, for all ranks: Note [Joined updates] in
// tandem/codegen/updates.py.
//
// A rank that dies half-way leaves parameters of others partly updated, as it would leave gradients partly reduced: the
// step has failed on all of them, and elastic training goes on from a commit.
#include <algorithm>
#include <cstring>

#include "collectives/member.h"
#include "collectives/reduce.h"
#include "device/parallel.h"
#include "library/scratch.h"
#include "memory/shared_heap.h"

namespace tandem::collectives {
namespace {

constexpr int64_t kAtOnce = 4096;  // elements that are reduced before the kernel has them, from the first cache

uint64_t mix(uint64_t hash, int64_t with) {
  hash = (hash ^ static_cast<uint64_t>(with)) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

// What the ranks have, read where it is.
class ReducedBlocks final : public Blocks {
 public:
  ReducedBlocks(std::vector<const char*> sources, DType dtype, Reduction reduction)
      : sources_(std::move(sources)), dtype_(dtype), reduction_(reduction) {}
  int64_t at_once() const override { return kAtOnce; }
  size_t room(int64_t count) const override { return static_cast<size_t>(count) * item_size(dtype_); }
  char* make(int64_t from, int64_t count, char* memory) const override {
    std::vector<const char*> in = sources_;
    for (const char*& one : in) one += from * static_cast<int64_t>(item_size(dtype_));
    reduce(in.data(), static_cast<int>(in.size()), &memory, 1, count, dtype_, reduction_);
    return memory;
  }

 private:
  const std::vector<const char*> sources_;
  const DType dtype_;
  const Reduction reduction_;
};

}  // namespace

void Member::describe_updates(const Request& request, Descriptor& to) const {
  for (int k = 0; k < request.num_updates; ++k) {
    const library::Update& update = request.updates[k];
    const Piece& piece = request.pieces[update.piece];
    if (update.dense->size() > kMostDense || update.numbers.size() > kMostNumbers) continue;
    Follows& follows = to.pieces[update.piece].follows;
    uint64_t identity = mix(mix(mix(update.identity, update.blocks), update.result), update.keeps);
    for (const int64_t number : update.ints) identity = mix(identity, number);
    for (size_t i = 0; i < update.dense->size(); ++i) {
      const char* data = static_cast<const char*>(update.pointers[(*update.dense)[i]]);
      // Its elements may have another size than the piece's: the block has them all if it has the first and the last.
      follows.dense[i] = Address{board_->shared() ? heap::offset_of(data, 1) : reinterpret_cast<int64_t>(data)};
      if (!follows.dense[i].known()) identity = 0;
    }
    for (size_t i = 0; i < update.numbers.size(); ++i)
      std::memcpy(follows.numbers[i], update.pointers[update.numbers[i]], update.number_bytes[i]);
    follows.identity = piece.in_count ? identity : 0;
    follows.keeps = update.keeps;
  }
}

// All ranks decide alike.
bool Member::have_one_update(int piece) const {
  const uint64_t identity = descriptor(rank_).pieces[piece].follows.identity;
  if (!identity) return false;
  for (int r = 0; r < size_; ++r)
    if (descriptor(r).pieces[piece].follows.identity != identity) return false;
  return true;
}

bool Member::is_joined(int piece) const {
  return have_one_update(piece) && (is_direct(piece) || is_shared_product(piece));
}

std::unique_ptr<Blocks> Member::blocks_of(const Request& request, int piece, int64_t begin, int64_t end) const {
  if (is_shared_product(piece)) return product_of(request, piece, begin, end);
  std::vector<const char*> sources;
  for (int r = 0; r < size_; ++r) sources.push_back(source(r, piece));
  return std::make_unique<ReducedBlocks>(std::move(sources), request.dtype, request.reduction);
}

// This rank's share of the blocks.
void Member::run_update(const Request& request, const library::Update& update) const {
  const int piece = update.piece;
  const auto item = static_cast<int64_t>(item_size(request.dtype));
  const int64_t count = request.pieces[piece].in_count, blocks = update.blocks;
  const auto bound = [&](int r) { return (blocks * r + (piece % size_)) / size_; };  // single blocks take turns
  const int64_t first = rank_ == 0 ? 0 : bound(rank_), last = rank_ + 1 == size_ ? blocks : bound(rank_ + 1);
  update.done = true;
  if (first == last) return;
  const auto source = blocks_of(request, piece, first * update.block, std::min(last * update.block, count));
  for (int r = 0; r < size_; ++r)
    for (size_t k = 0; k < update.dense->size(); ++k)
      source->comes_with(at(r, descriptor(r).pieces[piece].follows.dense[k]));
  const int64_t at_once = std::max<int64_t>(1, source->at_once() / update.block);
  const double cost = update.cost * size_ + 0.15 * size_ * static_cast<double>(update.block * item) / 4;
  parallel_for(last - first, cost, [&](int64_t begin, int64_t end) {
    const library::Scratch<char> memory(source->room(at_once * update.block));
    std::vector<void*> pointers(update.pointers.size());
    for (int64_t block = first + begin; block < first + end; block += at_once) {
      const int64_t stop = std::min(block + at_once, first + end), from = block * update.block;
      const int64_t n = std::min(stop * update.block, count) - from;
      char* reduced = source->make(from, n, memory.data());
      for (int i = 0; i < size_; ++i) {
        const int r = (rank_ + i) % size_;
        const Follows& follows = descriptor(r).pieces[piece].follows;
        for (size_t k = 0; k < update.dense->size(); ++k) pointers[(*update.dense)[k]] = at(r, follows.dense[k]);
        for (size_t k = 0; k < update.numbers.size(); ++k)
          pointers[update.numbers[k]] = const_cast<char*>(follows.numbers[k]);
        // The kernel counts from the first element of the result.
        pointers[update.result] =
            reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(reduced) - static_cast<uintptr_t>(from * item));
        update.kernel(pointers.data(), update.ints.data(), block, stop);
        if (update.keeps) std::memcpy(target(r, piece) + from * item, reduced, n * item);
      }
    }
  });
}

}  // namespace tandem::collectives
