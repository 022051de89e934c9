// Sorting by unsigned keys, alone or with positions: by digits, lowest first, so that equal keys keep their order.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "device/parallel.h"
#include "library/scratch.h"

namespace tandem::library {

// What entries are sorted by: an entry is its own key, or says which it is.
template <typename E>
inline auto key_in(const E& entry) {
  if constexpr (std::is_unsigned_v<E>)
    return entry;
  else
    return entry.key();
}

// How many low bits of the keys differ from one entry to another.
template <typename E>
int differing_bits(const E* entries, int64_t n) {
  const auto first = key_in(entries[0]);
  auto differences = first;
  differences = 0;
  for (int64_t i = 0; i < n; ++i) differences |= key_in(entries[i]) ^ first;
  return static_cast<int>(std::bit_width(differences));
}

// By the low `bits` bits of the keys. Returns where the result is: `from` or `to`.
template <typename E>
E* radix_passes(E* from, E* to, int64_t n, int bits) {
  constexpr int kMostBits = 11;
  const int most = n >= 4096 ? kMostBits : 8, passes = (bits + most - 1) / most;
  uint32_t counts[1 << kMostBits];
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = bits * pass / passes, width = bits * (pass + 1) / passes - shift;
    const uint32_t mask = (1u << width) - 1;
    const auto digit = [=](const E& e) { return static_cast<uint32_t>(key_in(e) >> shift) & mask; };
    std::fill(counts, counts + mask + 1, 0);
    for (int64_t i = 0; i < n; ++i) ++counts[digit(from[i])];
    if (counts[digit(from[0])] == static_cast<uint32_t>(n)) continue;
    uint32_t sum = 0;
    for (uint32_t d = 0; d <= mask; ++d) sum += std::exchange(counts[d], sum);
    for (int64_t i = 0; i < n; ++i) to[counts[digit(from[i])]++] = from[i];
    std::swap(from, to);
  }
  return from;
}

template <typename E>
constexpr int64_t kFewEntries = sizeof(E) > 4 ? 200 : 48;  // sorted by comparisons

// A part of a long list, from `from` to the same place in `to`, or back if that is where it ends up.
template <typename E>
void sort_bucket(E* from, E* to, int64_t n) {
  if (n < kFewEntries<E>) {
    std::sort(from, from + n);
    std::copy(from, from + n, to);
    return;
  }
  const E* made = radix_passes(from, to, n, differing_bits(from, n));
  if (made != to) std::copy(made, made + n, to);
}

// Entries in order; equal keys keep their order, or are sorted by what else the entry compares. Returns where the
// result is: `entries` or `other`. Long lists are dealt out by their leading digit first, in threads; the parts fit the
// cache.
template <typename E>
E* sort_entries(E* entries, E* other, int64_t n) {
  constexpr int64_t kLong = 1 << 15, kMost = int64_t{1} << 32, kPieces = 16;
  constexpr int kLeading = 11;
  if (n < kFewEntries<E> || n >= kMost) {
    std::sort(entries, entries + n);
    return entries;
  }
  const int bits = differing_bits(entries, n);
  if (n < kLong) return radix_passes(entries, other, n, bits);
  const int width = std::min(bits, kLeading), shift = bits - width;
  const uint32_t buckets = 1u << width, mask = buckets - 1;
  const auto digit = [=](const E& e) { return static_cast<uint32_t>(key_in(e) >> shift) & mask; };
  Scratch<uint32_t> counts(kPieces * buckets);
  Scratch<uint32_t> starts(buckets + 1);
  const auto piece = [n](int64_t i) { return n * i / kPieces; };
  parallel_for(kPieces, static_cast<double>(n) / kPieces, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      uint32_t* count = counts.data() + p * buckets;
      std::fill(count, count + buckets, 0);
      for (int64_t i = piece(p); i < piece(p + 1); ++i) ++count[digit(entries[i])];
    }
  });
  uint32_t sum = 0;
  for (uint32_t b = 0; b < buckets; ++b) {
    starts[b] = sum;
    for (int64_t p = 0; p < kPieces; ++p) sum += std::exchange(counts[p * buckets + b], sum);
  }
  starts[buckets] = sum;
  parallel_for(kPieces, 2.0 * static_cast<double>(n) / kPieces, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      uint32_t* at = counts.data() + p * buckets;
      for (int64_t i = piece(p); i < piece(p + 1); ++i) other[at[digit(entries[i])]++] = entries[i];
    }
  });
  if (shift == 0) return other;
  parallel_for(buckets, 5.0 * static_cast<double>(n) / buckets, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      if (starts[b + 1] > starts[b]) sort_bucket(other + starts[b], entries + starts[b], starts[b + 1] - starts[b]);
  });
  return entries;
}

// The key of rank k among n, and its rank among equal ones. Both arrays are used up.
template <typename K>
std::pair<K, int64_t> select_key(K* keys, K* other, int64_t n, int64_t k) {
  constexpr int kMostBits = 11;
  constexpr int64_t kFew = 48;
  while (n > kFew) {
    const int bits = differing_bits(keys, n);
    if (bits == 0) return {keys[0], k};
    const int width = std::min(bits, n >= 4096 ? kMostBits : 8), shift = bits - width;
    const uint32_t mask = (1u << width) - 1;
    uint32_t counts[2][1 << kMostBits];  // two, so that equal neighbours need not wait for each other
    std::fill(counts[0], counts[0] + mask + 1, 0);
    std::fill(counts[1], counts[1] + mask + 1, 0);
    for (int64_t i = 0; i < n; ++i) ++counts[i & 1][static_cast<uint32_t>(keys[i] >> shift) & mask];
    uint32_t digit = 0;
    for (;; ++digit) {
      const int64_t count = int64_t{counts[0][digit]} + counts[1][digit];
      if (k < count) break;
      k -= count;
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < n; ++i) {
      other[kept] = keys[i];
      kept += (static_cast<uint32_t>(keys[i] >> shift) & mask) == digit;
    }
    std::swap(keys, other);
    n = kept;
  }
  std::sort(keys, keys + n);
  return {keys[k], k - (std::lower_bound(keys, keys + k, keys[k]) - keys)};
}

}  // namespace tandem::library
