// Angles beyond what sin, cos and tan of generated kernels reduce by multiplication; kernels call this where one
// occurs.
#pragma once
#include <cstdint>

namespace tandem {

constexpr const char* reduce_angles_name = "tandem_reduce_angles";  // what kernels call it

// Each of n angles of 2^48 and more becomes the same angle within half a turn; others, infinities and NaN stay as they
// are.
void reduce_angles(double* angles, int64_t n);

}  // namespace tandem
