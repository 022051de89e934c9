// What a capture knows of storages: a hash table that keeps its memory from call to call, since a compiled function
// fills it anew every time.
#pragma once
#include <cstdint>
#include <vector>

namespace tandem {

class Storage;

struct StorageFacts {
  const Storage* storage;
  int32_t known = -1;    // the last of the tensors on it that can be named, of a chain
  int32_t promise = -1;  // memory that is not there yet
  int32_t leaf = -1;     // the last leaf on it, of a chain
  int32_t write = -1;    // it has memory, and calls write it
};

class StorageTable {
 public:
  StorageTable() : slots_(1024, -1) {}
  StorageFacts* find(const Storage* storage) {
    for (size_t i = place(storage);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i] < 0) return nullptr;
      if (entries_[slots_[i]].storage == storage) return &entries_[slots_[i]];
    }
  }
  const StorageFacts* find(const Storage* storage) const { return const_cast<StorageTable*>(this)->find(storage); }
  // References stay good until the next one is made.
  StorageFacts& operator[](const Storage* storage) {
    if (StorageFacts* found = find(storage)) return *found;
    if (2 * (entries_.size() + 1) > slots_.size()) grow();
    entries_.push_back({storage});
    put(entries_.size() - 1);
    return entries_.back();
  }
  void clear() {
    for (const StorageFacts& entry : entries_)
      for (size_t i = place(entry.storage); slots_[i] >= 0; i = (i + 1) & (slots_.size() - 1)) slots_[i] = -1;
    entries_.clear();
  }

 private:
  size_t place(const Storage* storage) const {
    return (reinterpret_cast<uintptr_t>(storage) * 0x9E3779B97F4A7C15ull >> 32) & (slots_.size() - 1);
  }
  void put(size_t entry) {
    size_t i = place(entries_[entry].storage);
    while (slots_[i] >= 0) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = static_cast<int32_t>(entry);
  }
  void grow() {
    slots_.assign(slots_.size() * 2, -1);
    for (size_t e = 0; e < entries_.size(); ++e) put(e);
  }

  std::vector<StorageFacts> entries_;
  std::vector<int32_t> slots_;  // a power of two
};

}  // namespace tandem
