// What ranks of one host share: who has arrived where, what each wants to do, and a little memory to pass data through.
//
// Note [Phases]
// Each rank counts the meetings of its group that it has arrived at (`phase`). A rank leaves a meeting when all have
// arrived. What a rank writes for meeting p (its descriptor, its stage) others read between p and their arrival at
// p + 1; so two copies, used in turn, need no second meeting before they are written again.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "collectives/call.h"
#include "collectives/communicator.h"
#include "memory/shared_memory.h"

namespace tandem::collectives {

constexpr int kMostRanks = 64, kMostPieces = 64, kRecords = 32, kText = 480;
constexpr int kMostDense = 6, kMostNumbers = 12;  // of an update, as in tandem/codegen/updates.py
constexpr int64_t kStage = int64_t{512} << 10, kChannel = int64_t{64} << 10;  // bytes

struct Address {  // memory that others can look at: in the heap of a rank, or nowhere
  int64_t offset = -1;
  bool known() const { return offset >= 0; }
};

// What follows an all-reduce of a piece (Note [Joined updates] in tandem/codegen/updates.py): memory of this rank that
// the kernel reads and writes as it does the piece, and its numbers.
struct Follows {
  uint64_t identity;  // of the kernel, its integers and sizes; 0: nothing follows that others could run
  bool keeps;         // whether somebody reads the result as well
  Address dense[kMostDense];
  char numbers[kMostNumbers][8];
};

// A piece that is a product of matrices, float32: Note [Joined products] in tandem/codegen/join_products.py.
struct Product {
  int64_t m, n, k;  // n = 0: it is none
  struct {
    Address at;
    int64_t row, column;  // strides, in elements
  } a, b;
};

struct Descriptor {
  Call call;
  int32_t num_pieces;
  bool addressable;
  struct {
    Address in, out;
    int64_t in_count, out_count;
    Follows follows;
    Product product;
  } pieces[kMostPieces];
  bool uneven;
  int64_t word;  // of Member::meet
  int32_t core;  // that the rank runs on
  int64_t sends[kMostRanks], takes[kMostRanks];
};

struct Entry {                    // of the flight recorder
  std::atomic<int64_t> sequence;  // 0: none yet
  std::atomic<int64_t> began;     // nanoseconds of CLOCK_MONOTONIC
  std::atomic<bool> done;
  Call call;
};

enum class Presence : uint32_t { Expected, Here, Left, Failed };

struct alignas(64) Slot {  // of a rank; written by it alone
  std::atomic<uint32_t> phase;
  alignas(64) std::atomic<uint32_t> sleepers;  // those that sleep until the phase changes (all write)
  std::atomic<uint32_t> presence;
  int32_t pid;
  Descriptor descriptors[2];
  Entry entries[kRecords];
  std::atomic<int64_t> entered;   // entries written so far
  std::atomic<uint32_t> answers;  // questions answered
  char failure[kText], where[kText];
};

struct alignas(64) Channel {                    // from one rank to another
  std::atomic<uint32_t> sent, taken, sleepers;  // messages, or parts of one
  Descriptor descriptor;
};

struct Header {
  int32_t size;
  std::atomic<uint32_t> questions;     // how often ranks were asked where they are
  std::atomic<uint32_t> first_failed;  // 1 + the rank that failed first; 0: none
};

// The memory of a group: a memfd, or plain memory where ranks are threads.
class Board {
 public:
  static std::shared_ptr<Board> create(int size, bool shared);
  static std::shared_ptr<Board> attach(int descriptor);
  ~Board();

  int size() const { return header().size; }
  int descriptor() const { return memory_ ? memory_->fd() : -1; }
  bool shared() const { return memory_ != nullptr; }
  Header& header() const { return *reinterpret_cast<Header*>(base_); }
  Slot& slot(int rank) const { return reinterpret_cast<Slot*>(base_ + sizeof_header())[rank]; }
  Channel& channel(int from, int to) const;
  char* stage(int rank, uint32_t phase) const;          // kStage bytes
  char* parcel(int from, int to, uint32_t part) const;  // kChannel bytes

 private:
  Board() = default;
  static size_t sizeof_header() { return (sizeof(Header) + 63) / 64 * 64; }
  size_t channels_at(int size) const { return sizeof_header() + size * sizeof(Slot); }
  size_t stages_at(int size) const;
  size_t bytes_for(int size) const;
  char* base_ = nullptr;
  size_t bytes_ = 0;
  std::shared_ptr<SharedMemory> memory_;  // null where ranks are threads
};

}  // namespace tandem::collectives
