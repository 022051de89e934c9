#include "operators/op_function.h"

#include <algorithm>

namespace tandem {

namespace {
constexpr size_t kMostSignatures = 256;
}

CacheEntry* PlanCache::find(uint64_t hash, const Signature& signature) {
  if (slots_.empty()) return nullptr;
  size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask; slots_[i]; i = (i + 1) & mask) {
    CacheEntry* entry = slots_[i].get();
    if (entry->hash == hash && entry->signature.size() == signature.size() &&
        std::memcmp(entry->signature.data(), signature.data(), signature.size()) == 0) {
      entry->used = ++finds_;
      return entry;
    }
  }
  return nullptr;
}

CacheEntry* PlanCache::insert(uint64_t hash, const Signature& signature) {
  if (count_ >= kMostSignatures) drop_oldest();
  if ((count_ + 1) * 2 > slots_.size()) rehash(slots_.empty() ? 8 : slots_.size() * 2);
  auto entry = std::make_unique<CacheEntry>();
  entry->hash = hash;
  entry->used = ++finds_;
  entry->signature.assign(signature.data(), signature.data() + signature.size());
  size_t mask = slots_.size() - 1, i = hash & mask;
  while (slots_[i]) i = (i + 1) & mask;
  slots_[i] = std::move(entry);
  ++count_;
  return slots_[i].get();
}

// A quarter at a time: looking for them takes as long as compiling a little.
void PlanCache::drop_oldest() {
  std::vector<std::unique_ptr<CacheEntry>> all;
  for (auto& slot : slots_)
    if (slot) all.push_back(std::move(slot));
  const auto kept = static_cast<std::ptrdiff_t>(kMostSignatures - kMostSignatures / 4);
  std::nth_element(all.begin(), all.begin() + kept, all.end(), [](auto& a, auto& b) { return a->used > b->used; });
  const size_t capacity = slots_.size();
  slots_.clear();
  slots_.resize(capacity);
  count_ = static_cast<size_t>(kept);
  for (size_t k = 0; k < count_; ++k) {
    size_t mask = capacity - 1, i = all[k]->hash & mask;
    while (slots_[i]) i = (i + 1) & mask;
    slots_[i] = std::move(all[k]);
  }
  // The cache is in order again before anything goes: that may run Python code.
  for (size_t k = count_; k < all.size(); ++k) Py_XDECREF(all[k]->keep);
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
