// Which way a convolution is computed.
//
// Note [Choice of convolutions]
// Winograd's method saves multiplications and moves more memory; oneDNN is quick on layouts that it likes and slow on
// some windows; products over one position, and windows of single channels, are ours in any layout. Which one is
// quickest depends on the sizes, on the layouts of both images and on the processor. So a large enough convolution is
// measured when it is first met on a machine, each way a few times on memory of its own with fewer images. Another way
// than the suggested one must be clearly quicker, and more clearly so where the measurements vary. A process spends
// some hundredths of a second on that; what there is no time for is computed as the instruction set suggests. Either
// way the choice stays (Note [Choices stay]).
#pragma once
#include "library/conv_impl.h"

namespace tandem::library {

enum class ConvWay { kWinograd, kPointwise, kDepthwise, kOneDnnFirst, kOneDnnLast };
constexpr int kConvWays = 5;

// Ways in the order in which they are to be tried, each once.
struct Ways {
  ConvWay list[kConvWays];
  int count = 0;
  void add(ConvWay way) {
    for (const ConvWay known : *this)
      if (known == way) return;
    list[count++] = way;
  }
  const ConvWay* begin() const { return list; }
  const ConvWay* end() const { return list + count; }
};

Ways ways_of(const Conv& conv);
bool compute_by(ConvWay way, const Conv& conv);  // false where the case is not for it

void prefer_convolutions(int way);            // one for all that it takes, whatever was measured; -1: as above
void set_convolution_budget(double seconds);  // for measurements; 0: none

}  // namespace tandem::library
