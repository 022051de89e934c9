// Memory of this process that other processes of the host can map: large blocks come from here once it is begun, so
// that collectives read and write tensors of other ranks where they lie.
//
// Note [Shared heap]
// One memfd without a name, as large as the machine's memory and sparse: what nobody has touched takes no memory, what
// is given back is punched out. Only blocks of more than 32 KiB lie here, whose bookkeeping is private memory. A child
// of fork shares these pages with its parent instead of getting copies: it takes no memory from here and gives none
// back.
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

void* map(size_t bytes, size_t alignment) noexcept;  // null: not begun, or full
bool unmap(void* address, size_t bytes) noexcept;    // whether it is from here
bool holds(const void* address) noexcept;            // whether it lies in this process's heap
bool inherited(const void* address) noexcept;        // whether it lies in the heap of the process that forked this one
char* base() noexcept;
int64_t offset_of(const void* address,
                  size_t bytes) noexcept;  // of memory that others may look at; -1: it lies elsewhere

}  // namespace tandem::heap
