// Elements of several ranks made one.
#pragma once
#include <cstdint>

#include "collectives/communicator.h"

namespace tandem::collectives {

// out[k][i] = reduction over r of in[r][i], in the order of ranks, for i < count and every k. An output may be one of
// the inputs. 16-bit floats are added up in float32 and rounded once.
void reduce(const char* const* in, int num_in, char* const* out, int num_out, int64_t count, DType dtype,
            Reduction reduction);

// Whether there is such a reduction of elements of this type.
bool is_defined(DType dtype, Reduction reduction);

}  // namespace tandem::collectives
