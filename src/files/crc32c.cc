#include "files/crc32c.h"

#include <array>
#include <cstring>

namespace tandem {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // bits reversed

// -- eight bytes a step from tables, for processors without the instruction

using Tables = std::array<std::array<uint32_t, 256>, 8>;

Tables make_tables() {
  Tables t;
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? (crc >> 1) ^ kPolynomial : crc >> 1;
    t[0][i] = crc;
  }
  for (uint32_t i = 0; i < 256; ++i)
    for (int k = 1; k < 8; ++k) t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 255];
  return t;
}

uint32_t update_by_table(uint32_t crc, const unsigned char* p, size_t bytes) {
  static const Tables t = make_tables();
  for (; bytes >= 8; p += 8, bytes -= 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    word ^= crc;
    crc = t[7][word & 255] ^ t[6][(word >> 8) & 255] ^ t[5][(word >> 16) & 255] ^ t[4][(word >> 24) & 255] ^
          t[3][(word >> 32) & 255] ^ t[2][(word >> 40) & 255] ^ t[1][(word >> 48) & 255] ^ t[0][word >> 56];
  }
  for (; bytes > 0; ++p, --bytes) crc = (crc >> 8) ^ t[0][(crc ^ *p) & 255];
  return crc;
}

// -- moving a checksum over zero bytes: a linear map, squared again and again

using Matrix = std::array<uint32_t, 32>;  // image of each bit

uint32_t apply(const Matrix& m, uint32_t vector) {
  uint32_t sum = 0;
  for (int i = 0; vector; ++i, vector >>= 1)
    if (vector & 1) sum ^= m[i];
  return sum;
}

Matrix square(const Matrix& m) {
  Matrix s;
  for (int i = 0; i < 32; ++i) s[i] = apply(m, m[i]);
  return s;
}

std::array<Matrix, 64> make_powers() {  // [k]: over 2^k zero bytes
  Matrix bit;
  bit[0] = kPolynomial;
  for (int i = 1; i < 32; ++i) bit[i] = 1u << (i - 1);
  std::array<Matrix, 64> powers;
  powers[0] = square(square(square(bit)));
  for (int k = 1; k < 64; ++k) powers[k] = square(powers[k - 1]);
  return powers;
}

uint32_t shift(uint32_t crc, size_t bytes) {
  static const std::array<Matrix, 64> powers = make_powers();
  for (int k = 0; bytes; ++k, bytes >>= 1)
    if (bytes & 1) crc = apply(powers[k], crc);
  return crc;
}

#if defined(__x86_64__)

// The instruction takes three cycles and one can start in each, so three runs of bytes are taken side by side.
__attribute__((target("sse4.2"))) uint32_t update_by_instruction(uint32_t crc, const unsigned char* p, size_t bytes) {
  constexpr size_t kRun = size_t{16} << 10;
  while (bytes >= 3 * kRun) {
    uint64_t a = crc, b = 0, c = 0;
    for (size_t i = 0; i < kRun; i += 8) {
      uint64_t x, y, z;
      std::memcpy(&x, p + i, 8);
      std::memcpy(&y, p + kRun + i, 8);
      std::memcpy(&z, p + 2 * kRun + i, 8);
      a = __builtin_ia32_crc32di(a, x);
      b = __builtin_ia32_crc32di(b, y);
      c = __builtin_ia32_crc32di(c, z);
    }
    crc = shift(shift(static_cast<uint32_t>(a), kRun) ^ static_cast<uint32_t>(b), kRun) ^ static_cast<uint32_t>(c);
    p += 3 * kRun;
    bytes -= 3 * kRun;
  }
  uint64_t wide = crc;
  for (; bytes >= 8; p += 8, bytes -= 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  crc = static_cast<uint32_t>(wide);
  for (; bytes > 0; ++p, --bytes) crc = __builtin_ia32_crc32qi(crc, *p);
  return crc;
}

const auto update = __builtin_cpu_supports("sse4.2") ? &update_by_instruction : &update_by_table;

#else

const auto update = &update_by_table;

#endif

}  // namespace

uint32_t crc32c(const void* data, size_t bytes, uint32_t before) {
  return ~update(~before, static_cast<const unsigned char*>(data), bytes);
}

uint32_t crc32c_combine(uint32_t first, uint32_t second, size_t second_bytes) {
  return shift(first, second_bytes) ^ second;
}

}  // namespace tandem
