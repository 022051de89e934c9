// Who computes a product of float32 matrices: tiles of our own, or oneDNN.
//
// Note [Choice of products]
// Neither is quicker everywhere. oneDNN packs by columns that fall into the same cache sets where rows lie a multiple
// of 2 KB apart, reads a transposed a badly, and shares few rows, or tall and narrow results, badly between threads;
// how much that costs, and who is quicker otherwise, depends on the processor. So products are of kinds, and for each
// kind one of the two is preferred: by a measurement of a typical one, made before a program first runs one
// (tandem/machine/tune.py), or else by what is known of the instruction set. The choice stays (Note [Choices stay]).
#pragma once
#include <optional>
#include <vector>

#include "library/matmul_impl.h"

namespace tandem::library {

enum class ProductKind {
  kNever,       // too few rows or columns to be worth tiles of ours
  kBatched,     // several matrices whose columns or rows collide in the cache
  kTransposed,  // a is read by columns
  kFewRows,     // of a
  kWide,        // of a transposed b, and not deep
  kColliding,   // rows of b a multiple of 2 KB apart
  kLarge,
  kTall,  // and narrow
  kOther,
};
constexpr int kProductKinds = 9;

ProductKind kind_of(const Batched& p);
bool prefers_own(ProductKind kind);
bool suggested(ProductKind kind);  // by the instruction set

std::optional<bool> chosen_own(ProductKind kind);                // nothing before a choice was made
void choose_products(ProductKind kind, bool own, bool again);    // by a measurement; again: whatever was chosen before
void force_products(ProductKind kind, std::optional<bool> own);  // for this process, instead of what was chosen

// Seconds that a typical product of a kind takes us and oneDNN, of every run; they take turns.
struct ProductTimes {
  std::vector<double> own, onednn;
};
ProductTimes time_products(ProductKind kind, int runs);

}  // namespace tandem::library
