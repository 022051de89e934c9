// Byte counts as people read them.
#pragma once
#include <cstddef>
#include <string>

namespace tandem {

std::string format_bytes(size_t bytes);  // "512.00 MiB"

}  // namespace tandem
