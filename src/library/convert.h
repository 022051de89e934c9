// Element type conversion over strided views.
#pragma once
#include "library/scratch.h"
#include "tensor/view.h"

namespace tandem::library {

// to = from, converted: between the floating types, and between integers (wrapping around). Equal shapes, any strides.
void convert_elements(const View& from, const View& to);

// A contiguous copy in another type.
View contiguous_as(const View& view, DType dtype, Scratch<char>& memory);

}  // namespace tandem::library
