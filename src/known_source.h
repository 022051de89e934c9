// Looking for the user's line walks Python's frames: whoever needs it several times in a row looks once.
#pragma once
#include <utility>

#include "source.h"

namespace tandem {

extern constinit thread_local const Source* known_source;  // what user_source() answers, if it is set

// The line that is the user's now stays the answer in this scope.
class KnownSource {
 public:
  KnownSource() : source_(user_source()), before_(std::exchange(known_source, &source_)) {}
  ~KnownSource() {
    known_source = before_;
    interpreter.release(source_.code);
  }
  KnownSource(const KnownSource&) = delete;
  const Source& get() const { return source_; }

 private:
  Source source_;
  const Source* before_;
};

// In this scope it is looked for again: Python code of the user runs.
class NoKnownSource {
 public:
  NoKnownSource() : before_(std::exchange(known_source, nullptr)) {}
  ~NoKnownSource() { known_source = before_; }
  NoKnownSource(const NoKnownSource&) = delete;

 private:
  const Source* before_;
};

}  // namespace tandem
