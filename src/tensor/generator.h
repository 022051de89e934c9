// State of the counter-based random generator (Philox): a seed, and how many counters were used.
#pragma once
#include <Python.h>

#include <cstdint>

namespace tandem {

// Used with the GIL held.
struct Generator {
  uint64_t seed = 0;
  uint64_t offset = 0;

  void manual_seed(uint64_t value) {
    seed = value;
    offset = 0;
  }
  // Takes `count` counters for one operator; gives the first of them.
  uint64_t advance(uint64_t count) {
    uint64_t first = offset;
    offset += count;
    return first;
  }
};

Generator* default_generator();             // the process has one; td.manual_seed sets it
Generator* as_generator(PyObject* object);  // of a Python Generator; null for anything else

}  // namespace tandem
