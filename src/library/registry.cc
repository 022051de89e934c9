#include "library/registry.h"

#include <map>

#include "check.h"
#include "library/scratch.h"

namespace tandem::library {
namespace {

// A function's static, so that it exists before the first Register, whatever the order of static initialisation.
struct Routine {
  Function function;
  bool prepares, waits;
};
std::map<std::string, Routine>& routines() {
  static std::map<std::string, Routine> map;
  return map;
}

}  // namespace

Register::Register(const char* name, Function function, bool prepares, bool waits) {
  routines()[name] = {function, prepares, waits};
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

bool waits(const std::string& name) {
  const auto found = routines().find(name);
  return found != routines().end() && found->second.waits;
}

std::mutex& keeping() {
  static std::mutex one;
  return one;
}

thread_local std::string line_of_call;
void (*settle)() noexcept = nullptr;

static thread_local size_t* scratch_need = nullptr;

bool measuring() {
  return scratch_need != nullptr;
}

void need_scratch(size_t bytes) {
  if (scratch_need) *scratch_need += scratch_bytes(bytes);
}

size_t scratch_of(const Call& call, Function routine) {
  size_t bytes = 0;
  scratch_need = &bytes;
  try {
    routine(call);
  } catch (...) {  // the run that follows meets it again, and tells
  }
  scratch_need = nullptr;
  return bytes;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& [name, routine] : routines()) all.push_back(name);
  return all;
}

}  // namespace tandem::library
