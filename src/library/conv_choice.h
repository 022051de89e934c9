// Which way a convolution is computed.
//
// Note [Choice of convolutions]
// Winograd's method saves multiplications and moves more memory; oneDNN is quick on layouts that it likes and slow on
// some windows; products over one position, and windows of single channels, are ours in any layout. Which one is
// quickest depends on the sizes, on the layouts of both images and on the processor. So a large enough convolution is
// measured when it is first met, each way a few times on memory of its own with fewer images, and what was found is
// kept (tandem/machine/tune.py, on disk). A first step waits some hundredths of a second for that: what there is no
// time for is computed as the instruction set suggests, and measured when the process ends, for as long as that is
// nothing beside what it ran, or by a later one. Results differ in the last bits between ways: a convolution that was
// computed one way stays so while the process lives.
#pragma once
#include <string>
#include <vector>

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

// What is known of a convolution: the least seconds of each way, 0 where it was not tried, and whether the measurements
// were quiet. `trust` is as in Note [Trust in measurements] of tandem/machine/tune.py.
struct ConvFinding {
  std::string key;
  double seconds[kConvWays];
  int trust;
};

void know_convolution(const ConvFinding& finding);  // of an earlier process
std::vector<ConvFinding> convolutions_found();      // by this process, since it was last asked
// Measures what was met when there was no time left, for a while: for later processes.
void measure_waiting_convolutions(double seconds);
void prefer_convolutions(int way);            // one for all that it takes, whatever was measured; -1: as above
void set_convolution_budget(double seconds);  // for measurements; 0: none

}  // namespace tandem::library
