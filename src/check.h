// Errors of the runtime. Each kind maps to one Python exception class (bindings/errors.cc).
#pragma once
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

namespace tandem {

enum class ErrorKind {
  Internal,
  Shape,
  Type,
  Index,
  Value,
  Memory,
  Autograd,
  Device,
  Unsupported,
  LinAlg,
  Distributed,
  Deadline,
  Division
};

// The rule of check_divisor, here because numbers are checked elsewhere than tensors.
inline constexpr const char* kDividedByZero =
    "ZeroDivisionError: an integer is divided by zero\n  fix: divide floats, or replace zeros first: td.where(y == 0, "
    "1, y)";

// The user's operator and line that a step of a program comes from.
struct Origin {
  std::string op, file, function;
  int line;
  int call = -1;  // which of the program's calls it is; -1 where that is not known
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind(kind) {}
  const ErrorKind kind;
  std::shared_ptr<const Origin> origin;  // where it happened, if that is not the line that runs now
};

template <typename... Parts>
[[noreturn]] void fail(ErrorKind kind, const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(kind, text.str());
}

}  // namespace tandem

// Our own invariants; a failure is a bug of Tandem, not of the caller.
#define TD_CHECK(condition, ...)                                              \
  do {                                                                        \
    if (!(condition)) [[unlikely]]                                            \
      ::tandem::fail(::tandem::ErrorKind::Internal, __FILE__, ":", __LINE__,  \
                     ": " #condition " failed. " __VA_OPT__(, ) __VA_ARGS__); \
  } while (0)
