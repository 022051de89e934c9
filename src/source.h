// Places in the user's program, for messages.
#pragma once
#include <string>

#include "check.h"
#include "interpreter.h"

namespace tandem {

// A code object and an instruction in it. The line is worked out only when a message needs it.
struct Source {
  Object* code = nullptr;  // owned by whoever holds the Source
  int instruction = -1;
};

// The innermost running line that is not Tandem's own, with a new reference; empty where there is none. Needs the GIL.
inline Source user_source() {
  return interpreter.user_source();
}

// The operator and line for errors that are raised later; `source` may be empty. Needs the GIL, unless it is.
inline Origin origin_of(const Source& source, const std::string& op) {
  return interpreter.origin_of(source, op);
}

// "train.py:12", or "" for an empty one. Needs the GIL.
inline std::string format_source(const Source& source) {
  return interpreter.format_source(source);
}

}  // namespace tandem
