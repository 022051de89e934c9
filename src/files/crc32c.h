// CRC-32C (Castagnoli), the checksum of checkpoints: by the processor's instruction where it has one.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tandem {

// The checksum of `data` after bytes whose checksum is `before` (0 for none).
uint32_t crc32c(const void* data, size_t bytes, uint32_t before = 0);

// The checksum of two runs of bytes from the checksum of each and the length of the second.
uint32_t crc32c_combine(uint32_t first, uint32_t second, size_t second_bytes);

}  // namespace tandem
