// What Python numbers among the arguments of an operator may be: they fit the integers that they meet.
#pragma once
#include "operators/bind.h"

namespace tandem {

bool takes_number(ParameterKind kind);

// Has Python say that a number does not fit integers of this type.
[[noreturn]] void fail_fit(OpFunction* op, const Parameter& parameter, PyObject* number, DType dtype);

void check_divisor(Arguments& out);  // the last argument
void check_written(OpFunction* op, const BoundCall& call, int position, const Argument& number);
void check_factor(OpFunction* op, const BoundCall& call, int position, const Argument& number);

}  // namespace tandem
