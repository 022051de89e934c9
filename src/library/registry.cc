#include "library/registry.h"

#include <map>

#include "check.h"

namespace tandem::library {
namespace {

// A function's static, so that it exists before the first Register, whatever the order of static initialisation.
struct Routine {
  Function function;
  bool prepares;
};
std::map<std::string, Routine>& routines() {
  static std::map<std::string, Routine> map;
  return map;
}

}  // namespace

Register::Register(const char* name, Function function, bool prepares) {
  routines()[name] = {function, prepares};
}

Function find(const std::string& name) {
  const auto found = routines().find(name);
  if (found == routines().end()) fail(ErrorKind::Internal, "there is no library routine called ", name);
  return found->second.function;
}

bool prepares(const std::string& name) {
  const auto found = routines().find(name);
  return found != routines().end() && found->second.prepares;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& [name, routine] : routines()) all.push_back(name);
  return all;
}

}  // namespace tandem::library
