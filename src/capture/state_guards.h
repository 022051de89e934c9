// Facts about Python objects that the code of a replayed function read: whether all of them still hold, without running
// any Python code. See Note [Replayed calls] in call_replay.h; tandem/replay/state.py collects the facts.
#pragma once
#include <Python.h>

#include <cstdint>
#include <vector>

namespace tandem {

// Owns Python objects, and shows them to the garbage collector.
class OwnedObjects {
 public:
  OwnedObjects() = default;
  OwnedObjects(const OwnedObjects&) = delete;
  ~OwnedObjects() { clear(); }
  PyObject* own(PyObject* o) {  // gives it back
    Py_XINCREF(o);
    if (o) objects_.push_back(o);
    return o;
  }
  int visit(visitproc visit, void* arg) const {
    for (PyObject* o : objects_)
      if (const int found = visit(o, arg)) return found;
    return 0;
  }
  void clear() {
    std::vector<PyObject*> gone;
    gone.swap(objects_);
    for (PyObject* o : gone) Py_DECREF(o);
  }
  bool empty() const { return objects_.empty(); }

 private:
  std::vector<PyObject*> objects_;
};

enum class FactKind : uint8_t {
  Dict,      // has these keys, in this order, with these values
  Sequence,  // a list of these items
  Cell,      // of a closure, holds this; empty without a value
  Entry,     // of a dict: this key has this value, or is not there
  Type,      // of an object
  Class,     // of this version: neither it nor a base was changed
  Function,  // has this code, these defaults and this closure
  Set,       // equal to this one
  Attribute  // of an object
};

// How a value is compared.
enum class Compare : uint8_t {
  Identity,
  Value,   // of numbers, texts and tuples of them
  Tensor,  // any tensor: who replays looks at it
  Number   // any float: it is an input
};

struct Fact {
  FactKind kind;
  PyObject* of;  // all borrowed from the OwnedObjects
  std::vector<PyObject*> keys, values;
  std::vector<Compare> compare;
  uint64_t version = 0;
};

// What Python describes as (kind, object, keys, values, comparisons). Throws PythonError.
Fact fact_from_python(PyObject* description, OwnedObjects& owned);

bool same_value(PyObject* a, PyObject* b);  // of plain Python values: type and value, floats bit by bit
bool matches(PyObject* now, PyObject* expected, Compare how);
bool holds(const Fact& fact);
uint64_t version_of(PyTypeObject* type);  // changes whenever the class or a base does

}  // namespace tandem
