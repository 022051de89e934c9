// Messages from one rank to another. Each pair has a channel in each direction; a message passes in parts through two
// parcels used in turn, or, where it lies in memory that the receiver can look at, is taken from there at once.
#include <algorithm>
#include <cstring>

#include "check.h"
#include "collectives/futex.h"
#include "collectives/member.h"
#include "memory/shared_heap.h"

namespace tandem::collectives {
namespace {

int64_t parts_of(int64_t bytes) {
  return std::max<int64_t>(1, (bytes + kChannel - 1) / kChannel);
}

void advance(std::atomic<uint32_t>& word, std::atomic<uint32_t>& sleepers) {
  word.fetch_add(1);
  if (sleepers.load()) futex_wake(word);
}

}  // namespace

// `sent` counts parts that lie ready, `taken` those that were taken; the description comes with the first part.
void Member::send(const Request& request) {
  Channel& channel = board_->channel(rank_, request.root);
  Descriptor described;
  describe(request, !board_->shared(), described);
  Entry& entry = note(described.call);
  const Piece& piece = request.pieces[0];
  const int64_t bytes =
      request.on_device ? 0 : piece.in_count * static_cast<int64_t>(item_size(request.dtype));  // the description alone
  const uint32_t before = channel.sent.load();
  // The description of the message before this one has been read when its last part was taken.
  wait(channel.taken, channel.sleepers, before, request.root, described.call);
  described.addressable &= can_look_at_all_ && described.pieces[0].in.known();
  channel.descriptor = described;
  const int64_t parts = described.addressable ? 1 : parts_of(bytes);
  for (int64_t i = 0; i < parts; ++i) {
    const uint32_t part = before + static_cast<uint32_t>(i);
    if (i >= 2) wait(channel.taken, channel.sleepers, part - 1, request.root, described.call);
    if (!described.addressable && bytes)
      std::memcpy(board_->parcel(rank_, request.root, part), piece.in + i * kChannel,
                  std::min(kChannel, bytes - i * kChannel));
    advance(channel.sent, channel.sleepers);
  }
  if (described.addressable) wait(channel.taken, channel.sleepers, before + 1, request.root, described.call);
  if (!request.on_device && piece.out)  // the zero that functional.send gives
    std::memset(piece.out, 0, piece.out_count * item_size(request.dtype));
  entry.done.store(true);
}

void Member::receive(const Request& request) {
  Channel& channel = board_->channel(request.root, rank_);
  Descriptor described;
  describe(request, !board_->shared(), described);
  Entry& entry = note(described.call);
  const Piece& piece = request.pieces[0];
  const int64_t bytes = request.on_device ? 0 : piece.out_count * static_cast<int64_t>(item_size(request.dtype));
  uint32_t part = channel.taken.load();
  wait(channel.sent, channel.sleepers, part + 1, request.root, described.call);
  const Descriptor theirs = channel.descriptor;
  const Call &a = described.call, &b = theirs.call;
  const bool fits = a.dtype == b.dtype && a.out_count == b.in_count && a.tag == b.tag && a.ndim == b.ndim &&
                    a.on_device == b.on_device && std::equal(a.shape, a.shape + std::min(a.ndim, 8), b.shape);
  if (!fits) {
    const int64_t parts = theirs.addressable || b.on_device
                              ? 1
                              : parts_of(b.in_count * static_cast<int64_t>(item_size(static_cast<DType>(b.dtype))));
    for (int64_t i = 0; i < parts; ++i) {  // the message is taken, so that the next one may come
      wait(channel.sent, channel.sleepers, part + static_cast<uint32_t>(i) + 1, request.root, a);
      advance(channel.taken, channel.sleepers);
    }
    fail(ErrorKind::Distributed, mistaken_message(b, names_[request.root], a, names_[rank_]));
  }
  if (theirs.addressable) {
    const int64_t offset = theirs.pieces[0].in.offset;
    const char* from = board_->shared() ? peers_[request.root].heap + offset : reinterpret_cast<const char*>(offset);
    std::memcpy(piece.out, from, bytes);
    advance(channel.taken, channel.sleepers);
  } else {
    for (int64_t i = 0; i < parts_of(bytes); ++i, ++part) {
      wait(channel.sent, channel.sleepers, part + 1, request.root, a);
      if (bytes)
        std::memcpy(piece.out + i * kChannel, board_->parcel(request.root, rank_, part),
                    std::min(kChannel, bytes - i * kChannel));
      advance(channel.taken, channel.sleepers);
    }
  }
  entry.done.store(true);
}

}  // namespace tandem::collectives
