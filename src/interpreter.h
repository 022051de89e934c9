// The interpreter that drives the runtime, as far as what runs plans must know of it.
//
// Note [Without Python]
// Everything up to plans and their replay (the target tandem_core of CMakeLists.txt) is compiled without Python's
// headers and links without its library: it asks for the interpreter's lock, the user's line and the like here. The
// extension fills this table in (bindings/interpreter.cc); a program that links the core alone leaves it as it is, and
// then there is no lock, no line, and nobody to be interrupted by.
#pragma once
#include <memory>
#include <string>
#include <vector>

struct _object;  // PyObject

namespace tandem {

using Object = ::_object;

struct PythonError {};  // thrown where an exception of the interpreter is set

struct Source;
struct Origin;

struct Interpreter {
  bool (*holds_lock)();             // whether this thread holds the lock
  void* (*unlock)();                // lets it go, if this thread holds it; gives what `lock` takes
  void (*lock)(void* state);        // takes it back
  bool (*is_gone)();                // whether its life is over: nothing of it may be touched
  int (*enter)();                   // takes the lock, whether this thread holds it or not
  void (*leave)(int state);         // and lets it go again
  void (*release)(Object* object);  // gives up a reference, if there is one; needs the lock
  void (*retain)(Object* object);
  bool (*interrupted)();    // whether the user asked to stop: an exception is set then. Needs the lock
  void (*clear_error)();    // needs the lock
  Source (*user_source)();  // see source.h, all three
  Origin (*origin_of)(const Source& source, const std::string& op);
  std::string (*format_source)(const Source& source);
  // Where an operator that may complain was called, for the message that shows much later (places.h).
  std::shared_ptr<const Origin> (*called_from)(const std::string& op);
  // A kernel of a CUDA device that the runtime launches by itself (device/cuda/own_kernels.h). Needs the lock.
  void* (*own_kernel)(const char* kind, int argument, int device);
  std::vector<std::string> (*library_paths)(const char* name);  // where a library of NVIDIA's may be. Needs the lock.
};
extern Interpreter interpreter;

// Other threads of the interpreter run while this one computes or waits.
class Unlocked {
 public:
  Unlocked() : state_(interpreter.unlock()) {}
  ~Unlocked() { interpreter.lock(state_); }
  Unlocked(const Unlocked&) = delete;

 private:
  void* state_;
};

// The lock is held here, whatever was before.
class Locked {
 public:
  Locked() : state_(interpreter.enter()) {}
  ~Locked() { interpreter.leave(state_); }
  Locked(const Locked&) = delete;

 private:
  int state_;
};

}  // namespace tandem
