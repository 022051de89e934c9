#include "dispatch/op_function.h"

namespace tandem {

CacheEntry* PlanCache::find(uint64_t hash, const Signature& signature) {
  if (slots_.empty()) return nullptr;
  size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask; slots_[i]; i = (i + 1) & mask) {
    CacheEntry* entry = slots_[i].get();
    if (entry->hash == hash && entry->signature.size() == signature.size() &&
        std::memcmp(entry->signature.data(), signature.data(), signature.size()) == 0)
      return entry;
  }
  return nullptr;
}

CacheEntry* PlanCache::insert(uint64_t hash, const Signature& signature) {
  if ((count_ + 1) * 2 > slots_.size()) rehash(slots_.empty() ? 8 : slots_.size() * 2);
  auto entry = std::make_unique<CacheEntry>();
  entry->hash = hash;
  entry->signature.assign(signature.data(), signature.data() + signature.size());
  size_t mask = slots_.size() - 1, i = hash & mask;
  while (slots_[i]) i = (i + 1) & mask;
  slots_[i] = std::move(entry);
  ++count_;
  return slots_[i].get();
}

void PlanCache::rehash(size_t capacity) {
  std::vector<std::unique_ptr<CacheEntry>> old(capacity);
  old.swap(slots_);
  for (auto& entry : old) {
    if (!entry) continue;
    size_t mask = capacity - 1, i = entry->hash & mask;
    while (slots_[i]) i = (i + 1) & mask;
    slots_[i] = std::move(entry);
  }
}

void PlanCache::clear() {
  for (auto& entry : slots_)
    if (entry) Py_XDECREF(entry->keep);
  slots_.clear();
  count_ = 0;
}

size_t PlanCache::num_plans() const {
  size_t n = 0;
  for (auto& entry : slots_)
    if (entry) n += entry->variants.size();
  return n;
}

}  // namespace tandem
