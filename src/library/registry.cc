#include "library/registry.h"

#include <map>

#include "check.h"

namespace tandem::library {
namespace {

// A function's static, so that it exists before the first Register, whatever the order of static initialisation.
std::map<std::string, Function>& routines() {
  static std::map<std::string, Function> map;
  return map;
}

}  // namespace

Register::Register(const char* name, Function function) {
  routines()[name] = function;
}

Function find(const std::string& name) {
  const auto found = routines().find(name);
  if (found == routines().end()) fail(ErrorKind::Internal, "there is no library routine called ", name);
  return found->second;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& [name, function] : routines()) all.push_back(name);
  return all;
}

}  // namespace tandem::library
