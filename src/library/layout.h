// Layouts of (N, C, spatial...) tensors.
#pragma once
#include "library/scratch.h"
#include "tensor/view.h"

namespace tandem::library {

// Dense memory in the usual order of axes (N, C, spatial) or with channels last; axes of one element do not count.
bool is_channels_first(const View& view);
bool is_channels_last(const View& view);
void set_channels_last(View& view);  // strides

// A dense stand-in of another type, in the same one of the two layouts (channels first where it is neither). The values
// are converted with `load`, otherwise undefined.
View stand_in(const View& view, DType dtype, Scratch<char>& memory, bool load);

}  // namespace tandem::library
