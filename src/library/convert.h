// Element type conversion over strided views.
#pragma once
#include "tensor/view.h"

namespace tandem::library {

// to = from, converted: between the floating types, and between integers (wrapping around). Equal shapes, any strides.
void convert_elements(const View& from, const View& to);

}  // namespace tandem::library
