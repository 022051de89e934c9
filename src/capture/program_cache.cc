// The programs of a compiled function that are kept.
#include <algorithm>
#include <cstring>

#include "capture/capture.h"

namespace tandem {

namespace {
constexpr size_t kMaxSequences = 128;  // of operators, per function: those used last are kept
}

std::shared_ptr<ProgramCache::Entry> ProgramCache::find_or_insert(const std::vector<uint8_t>& key) {
  uint64_t h = 1469598103934665603ull;
  size_t i = 0;
  for (; i + 8 <= key.size(); i += 8) {
    uint64_t v;
    std::memcpy(&v, key.data() + i, 8);
    h = (h ^ v) * 0x9E3779B97F4A7C15ull;
    h ^= h >> 29;
  }
  for (; i < key.size(); ++i) h = (h ^ key[i]) * 1099511628211ull;
  auto [first, last] = index_.equal_range(h);
  for (auto it = first; it != last; ++it)
    if (entries[it->second]->key == key) {
      entries[it->second]->used = ++finds_;
      return entries[it->second];
    }
  if (entries.size() >= kMaxSequences) drop_oldest();
  entries.push_back(std::make_shared<Entry>());
  entries.back()->key = key;
  entries.back()->hash = h;
  entries.back()->used = ++finds_;
  index_.emplace(h, entries.size() - 1);
  return entries.back();
}

void ProgramCache::drop_oldest() {
  const size_t kept = kMaxSequences - kMaxSequences / 4;
  std::vector<std::shared_ptr<Entry>> all = entries;
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept), all.end(),
                   [](auto& a, auto& b) { return a->used > b->used; });
  const uint64_t oldest = std::min_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept),
                                           [](auto& a, auto& b) { return a->used < b->used; })
                              ->get()
                              ->used;
  std::erase_if(entries, [&](auto& entry) { return entry->used < oldest; });  // in the order they came
  index_.clear();
  for (size_t i = 0; i < entries.size(); ++i) index_.emplace(entries[i]->hash, i);
  latest.clear();
  for (auto& entry : all)
    if (entry->used < oldest)
      for (const Entry::Program& program : entry->programs) tell(program.number, "forget");
}

ProgramCache::ProgramCache() = default;

ProgramCache::~ProgramCache() {
  Py_XDECREF(report);
  Py_XDECREF(watch);
  Py_XDECREF(remote);
}

void ProgramCache::clear() {
  latest.clear();
  if (report && !entries.empty()) {
    PyObject* done = PyObject_CallMethod(report, "start_over", nullptr);
    if (!done) PyErr_Clear();
    Py_XDECREF(done);
  }
  entries.clear();
  index_.clear();
}

void ProgramCache::tell(int64_t number, const char* what) {
  if (!report) return;
  PyObject* done = PyObject_CallMethod(report, what, "L", static_cast<long long>(number));
  if (!done) PyErr_Clear();
  Py_XDECREF(done);
}

}  // namespace tandem
