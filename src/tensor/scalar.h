// Single elements, to and from Python numbers. The address need not be aligned.
#pragma once
#include <Python.h>

#include "tensor/dtype.h"

namespace tandem {

// A bool, int, float or complex of exactly the element's value. New reference; throws when Python is out of memory.
PyObject* read_element(const char* address, DType dtype);

// Stores a Python number (or what has __index__, __float__ or __complex__), rounding floats to nearest even and cutting
// fractions off for integers. Throws Error when the value does not fit, or when `value` is no number.
void write_element(char* address, DType dtype, PyObject* value);

bool element_is_true(const char* address, DType dtype);

}  // namespace tandem
