// What a capture knows of storages: a hash table that keeps its memory from call to call, since a compiled function
// fills it again every time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem {

class Storage;

struct StorageFacts {
  const Storage* storage;
  int32_t deferred = -1;     // memory that is not there yet
  int32_t leaf = -1;         // the last leaf on it, of a chain
  int32_t write = -1;        // it has memory, and calls write it
  int32_t replacements = 0;  // writes through views of it that gave it anew
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

// Numbers from 0 on, each added with a hash: chains of those with hashes alike, the last first. A storage may have tens
// of thousands of views (rows of an embedding), so these are not looked for one after the other.
class HashChains {
 public:
  HashChains() : heads_(1024, -1) {}
  void add(uint64_t hash) {
    if (entries_.size() >= heads_.size()) grow();
    int32_t& head = heads_[hash & (heads_.size() - 1)];
    entries_.push_back({hash, head});
    head = static_cast<int32_t>(entries_.size()) - 1;
  }
  int32_t first(uint64_t hash) const { return matching(heads_[hash & (heads_.size() - 1)], hash); }
  int32_t after(int32_t number) const { return matching(entries_[number].next, entries_[number].hash); }
  void clear() {
    for (const Entry& entry : entries_) heads_[entry.hash & (heads_.size() - 1)] = -1;
    entries_.clear();
  }

 private:
  struct Entry {
    uint64_t hash;
    int32_t next;
  };
  int32_t matching(int32_t number, uint64_t hash) const {
    while (number >= 0 && entries_[number].hash != hash) number = entries_[number].next;
    return number;
  }
  void grow() {
    heads_.assign(heads_.size() * 2, -1);
    for (size_t i = 0; i < entries_.size(); ++i) {
      int32_t& head = heads_[entries_[i].hash & (heads_.size() - 1)];
      entries_[i].next = head;
      head = static_cast<int32_t>(i);
    }
  }

  std::vector<Entry> entries_;
  std::vector<int32_t> heads_;  // a power of two
};

}  // namespace tandem
