// How elements are divided among ranks, and among the tensors of one collective.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "collectives/communicator.h"

namespace tandem::collectives {

// The part of [0, count) that is rank r's, in whole cache lines but for the last.
inline std::pair<int64_t, int64_t> share(int64_t count, int rank, int size) {
  const auto bound = [&](int r) { return r == size ? count : count / 16 * r / size * 16; };
  return {bound(rank), bound(rank + 1)};
}

// Elements [begin, begin + count) of all pieces, as if they lay one after the other: f(piece, first, n, done).
template <typename F>
void for_range(const std::vector<Piece>& pieces, int64_t begin, int64_t count, F f) {
  int64_t at = 0, done = 0;
  for (size_t i = 0; i < pieces.size() && done < count; ++i) {
    const int64_t n = pieces[i].in_count, first = std::max<int64_t>(0, begin + done - at);
    at += n;
    if (first >= n) continue;
    const int64_t part = std::min(n - first, count - done);
    f(i, first, part, done);
    done += part;
  }
}

}  // namespace tandem::collectives
