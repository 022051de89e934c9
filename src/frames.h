// Python's running frames, innermost first. Needs the GIL.
//
// Python makes frame objects when somebody asks for one, which takes longer than deferring a call does; interpreters
// whose own frames we know are looked at directly, others are asked.
#pragma once
#include <Python.h>

namespace tandem {

class Frames {
 public:
  Frames();
  ~Frames();
  Frames(const Frames&) = delete;
  bool at_end() const { return frame_ == nullptr; }
  PyCodeObject* code() const { return code_; }  // borrowed; of the frame this one is at
  int instruction() const;                      // as PyFrame_GetLasti
  void next();

 private:
  void look();
  void* frame_ = nullptr;
  PyCodeObject* code_ = nullptr;
};

}  // namespace tandem
