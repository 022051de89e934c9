// Memory of this process that other processes of the host can map, so that collectives read and write tensors of other
// ranks where they lie.
//
// Note [Shared heap]
// One memfd without a name, as large as the machine's memory and sparse: what nobody has touched takes no memory, what
// is given back is punched out. Its pages are small ones on most systems, with which kernels run a few percent slower,
// so only blocks of certain sizes lie here: those of tensors that a collective has met elsewhere. Gradients are made
// anew in every step, with the same sizes, so from the second step on they are here; a tensor that stays is moved
// (bindings/collectives.cc). The bookkeeping is private memory. A child of fork takes no memory from here and gives
// none back; it gets a copy of a page when it writes there, and until then sees what its parent writes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tandem::heap {

int begin();                // the descriptor to hand to others; -1 where the system has no such memory. Again: the same
void pause();               // no further blocks from here; what there is stays
void note_fork() noexcept;  // in the child

struct Mapping {  // the heap of another process in this one's memory
  char* base;
  size_t bytes;
  ~Mapping();
};
std::shared_ptr<Mapping> attach(int descriptor);  // the same for all who have it; null where the system refuses

void want(size_t bytes) noexcept;               // tensors of so many bytes are to lie here
bool is_wanted(size_t block) noexcept;          // whether blocks of this size are
void* take(size_t block) noexcept;              // one that came back; null: there is none
void* map(size_t block) noexcept;               // a new one, filled with zeros; null: there is no room
bool give(void* block, size_t bytes) noexcept;  // back; whether its memory went to the system
size_t empty() noexcept;                        // gives the system what came back, and says how much that was

bool holds(const void* address) noexcept;  // whether it lies in this process's heap
char* base() noexcept;
int64_t offset_of(const void* address,
                  size_t bytes) noexcept;  // of memory that others can look at; -1: it lies elsewhere

}  // namespace tandem::heap
