#include "loader/argument_reduction.h"

#include <bit>

// Note [Argument reduction]
// x = m 2^e with an integer m of 53 bits. Of x / (2 pi) only the part after the point matters, and of 1 / (2 pi) only
// the bits from the e-th one on: those before it give whole turns (Payne and Hanek). 192 bits from there leave an error
// below 2^-139 turns. The result is the angle within half a turn as a float64; its error is at most about 4e-16.

namespace tandem {
namespace {

// The bits of 1 / (2 pi) after the point, after a word of zeros for small exponents.
constexpr uint64_t turn_words[] = {0x0000000000000000, 0x28BE60DB9391054A, 0x7F09D5F47D4D3770, 0x36D8A5664F10E410,
                                   0x7F9458EAF7AEF158, 0x6DC91B8E909374B8, 0x01924BBA82746487, 0x3F877AC72C4A69CF,
                                   0xBA208D7D4BAED121, 0x3A671C09AD17DF90, 0x4E64758E60D4CE7D, 0x272117E2EF7E4A0E,
                                   0xC7FE25FFF7816603, 0xFBCBC462D6829B47, 0xDB4D9FB3C9F2C26D, 0xD3D18FD9A797FA8B,
                                   0x5D49EEB1FAF97C5E, 0xCF41CE7DE294A4BA, 0x9AFED7EC47E35742, 0x1580CC11BF1EDAEA,
                                   0xFC33EF0826BD0D87};

using Wide = unsigned __int128;

uint64_t bits_from(int position) {
  const uint64_t* word = turn_words + position / 64;
  int shift = position % 64;
  return shift ? word[0] << shift | word[1] >> (64 - shift) : word[0];
}

double reduced_angle(double x) {
  uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52 & 2047);
  if (exponent == 2047 || exponent < 1023 + 48) return x;
  uint64_t m = (bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
  int position = exponent - (1075 - 64);
  uint64_t high = bits_from(position), middle = bits_from(position + 64), low = bits_from(position + 128);
  Wide turn = (Wide{m * high} << 64) + Wide{m} * middle + (Wide{m} * low >> 64);  // of 2^128: one turn
  bool negative = turn >> 127;
  Wide size = negative ? -turn : turn;
  if (size == 0) return std::bit_cast<double>(bits & uint64_t{1} << 63);
  auto top = static_cast<uint64_t>(size >> 64);
  int zeros = top ? std::countl_zero(top) : 64 + std::countl_zero(static_cast<uint64_t>(size));
  auto leading = static_cast<int64_t>(static_cast<uint64_t>(size << zeros >> 65));
  double scale = std::bit_cast<double>(static_cast<uint64_t>(1023 - 63 - zeros) << 52);
  double angle = static_cast<double>(leading) * scale * 0x1.921fb54442d18p+2;
  return negative != static_cast<bool>(bits >> 63) ? -angle : angle;
}

}  // namespace

void reduce_angles(double* angles, int64_t n) {
  for (int64_t i = 0; i < n; ++i) angles[i] = reduced_angle(angles[i]);
}

}  // namespace tandem
