// Products of float32 whose left side has many zeros.
//
// Note [Zeros in products]
// A relu leaves about half of its results 0 (more after training), and so is half of the gradient that comes back
// through it. Tiles of a product multiply with all of them. Here the elements that are not 0 are listed first, row by
// row, and each is multiplied with its row of b: nearly as many multiplications per cycle as in a tile, fewer of them.
// 256x2048 @ 2048x2048 took 0.74 of the time with half of a 0, 0.37 with 0.9 of it; from 0.4 on it is worth it.
//
// What is left out is 0 times an element of b, which is nothing unless that is infinite or NaN. Panels of b are looked
// at when they are packed, and get all of a where they are not finite.
#pragma once
#include <cstddef>

#include "library/gemm.h"

namespace tandem::library {

// False where nothing was done: a looks dense, or is too small for lists to pay.
bool listed_product(const Product<float>& p);

// Bytes of Scratch that the calling thread takes for it, where a has zeros.
size_t listed_scratch(int64_t m, int64_t n, int64_t k);

}  // namespace tandem::library
