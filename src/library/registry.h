// Library calls: routines that programs call by name (matmul, convolution, sort, ...), as opposed to generated kernels.
//
// A call gets inputs and already allocated outputs as Views, plus integer and float attributes whose meaning the
// routine documents. It runs without the GIL, may use device/parallel.h, and throws tandem::Error on failure.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tensor/view.h"

namespace tandem {
struct Origin;  // check.h
}

namespace tandem::library {

struct Epilogue;     // library/epilogue.h
struct Update;       // library/update.h
struct Factors;      // library/factors.h
struct BlockKernel;  // library/block_kernel.h

// What a routine made of inputs that stay the same from one iteration of a loop to the next, or from call to call, such
// as packed weights. Several threads may run a program whose weights stay the same; `kept_by` lets one of them make it.
struct Kept {
  virtual ~Kept() = default;
};

struct Call {
  const View* inputs;
  int num_inputs;
  const View* outputs;  // memory is allocated, contents undefined unless the routine documents otherwise
  int num_outputs;
  const int64_t* ints;  // attributes, some of them computed from sizes at run time
  int num_ints;
  const double* floats;
  int num_floats;
  int64_t* int_results = nullptr;         // where a routine that computes sizes (count_nonzero, ...) leaves them
  int device = 0;                         // of a routine for devices: which cuda device, and
  void* stream = nullptr;                 // where to queue the work
  const Origin* origin = nullptr;         // the user's line that it comes from, where a program knows it
  const Epilogue* epilogue = nullptr;     // what is done to the result, block by block; see Note [Epilogues]
  const Update* updates = nullptr;        // what is done to results of a collective, see Note [Joined updates], and
  int num_updates = 0;                    // how many there are
  const Factors* factors = nullptr;       // of operands of a collective, see Note [Joined products], and
  int num_factors = 0;                    // how many there are
  const BlockKernel* blocks = nullptr;    // kernels that it calls for blocks, see Note [Block kernels], and
  int num_blocks = 0;                     // how many there are
  uint32_t same = 0;                      // which inputs stay the same (bits), in a loop or from call to call, and
  std::unique_ptr<Kept>* kept = nullptr;  // where to keep what was made of them
};

std::mutex& keeping();  // held while something kept is made or looked for

// What this call keeps, made by `make` at the first time. For a call with a place to keep things.
template <typename T, typename Make>
T& kept_by(std::unique_ptr<Kept>& place, Make&& make) {
  const std::lock_guard lock(keeping());
  if (!place) place = make();
  return static_cast<T&>(*place);
}

using Function = void (*)(const Call&);

// Registers at static-initialisation time: `static Register matmul("matmul", &run_matmul);`
struct Register {
  Register(const char* name, Function function, bool prepares = false, bool waits = false);
};

Function find(const std::string& name);  // throws if there is no such routine
bool prepares(const std::string& name);  // whether prepare() is of use to it
bool waits(const std::string& name);     // whether it waits for others, so that the GIL must be free meanwhile

// Note [Preparing]
// What oneDNN runs it first makes: it chooses an implementation for the sizes and writes machine code, which takes
// milliseconds a call. A program that meets new sizes has all its calls made ready at once, by all threads: the
// routines run with preparing() true, when they must make what they need but read and write no tensor.
// Call::inputs and outputs have sizes and strides then, but no memory.
void prepare(const std::vector<Call>& calls, const std::vector<Function>& routines);  // onednn.cc
bool preparing();

// How many bytes of Scratch a call will take in this thread, as far as its routine tells: it runs with preparing() and
// measuring() true, and calls need_scratch.
size_t scratch_of(const Call& call, Function routine);
bool measuring();
void need_scratch(size_t bytes);
std::vector<std::string> names();

// Waits for what routines have begun and not ended, where a program ends by an error between the two. Null: none does.
extern void (*settle)() noexcept;

// The user's line, where this thread runs a plan that waits and was made for one operator.
extern thread_local std::string line_of_call;

}  // namespace tandem::library
