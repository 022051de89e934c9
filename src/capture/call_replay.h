// A call of a function compiled with replay=True, run again without its Python code.
//
// Note [Replayed calls]
// td.compile runs a function's Python code at every call (Note [Capture]); with replay=True it is run while it is
// observed (tandem/replay), and then only when something that it read has changed. What one call comes to is a program,
// where its inputs come from (arguments, tensors that Python objects hold, gradients, learning rates, streams of random
// numbers) and where its results go (what is returned, gradients, places that were rebound). All that is data here: a
// replay looks at the facts, binds the inputs, runs the program and hands out the results, in C++.
//
// It never guesses. A fact that does not hold, an argument of another kind, two tensors that share memory and did not
// (or the other way round), another mode: run() answers that it cannot, with the reason, and the Python code runs
// again. An operator that fails because of values, before anything was written, makes the Python code run as well,
// which fails where it has to.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "capture/call_record.h"
#include "capture/state_guards.h"
#include "modes.h"
#include "small_vector.h"
#include "tensor/node.h"

namespace tandem {

struct Modes {  // of the thread and the process, that a call depends on
  GradMode grad;
  CallMode call;
  int8_t scope;
  DType floats;
  bool anomaly;
  int rank;
  Generator* generator;
  static Modes now();
  bool operator==(const Modes& o) const;
};

// Tensors that a call may have read, as they were before it.
class TensorSources {
 public:
  enum class From : uint8_t { Argument, Object, Grad, Item };
  struct Source {
    From from;
    int32_t index;           // Argument: which tensor among the arguments. Grad: of which source
    PyObject *object, *key;  // Object: the tensor. Item: a dict or list, and the key
    PyTypeObject* type;      // what is expected of it, all of this
    View view;
    int device;
    bool requires_grad, inference, has_grad;
    bool has_attributes;   // of Python
    bool same_object;      // as that first source
    int32_t first;         // the first source on the same memory
    int64_t distance;      // from there, in bytes
    Ref<Storage> storage;  // before the call; let go when the replay is made
    const Tensor* object_before = nullptr;
  };
  Modes modes = Modes::now();
  OwnedObjects owned;
  std::vector<Source> sources;
  void add(From from, int32_t index, PyObject* object, PyObject* key, Tensor* example);
  int32_t find(const Storage* storage) const;  // the first on this memory, or -1
  // From now on sources hold the objects that tensors come from, and no longer the memory that these had.
  void finish() {
    for (Source& s : sources) {
      s.storage = nullptr;
      owned.own(s.object);
      owned.own(s.key);
    }
  }
};

// What arguments look like: tensors, values, objects, and containers of them.
struct ArgumentShape {
  enum class Kind : uint8_t { Tensor, Value, Object, Tuple, List, Dict } kind;
  PyObject* expected = nullptr;  // Value, Object
  std::vector<PyObject*> keys;   // Dict
  std::vector<ArgumentShape> items;
};

// What a call gives: tensors that its program made, tensors that were there, values, and containers of them.
struct ResultShape {
  enum class Kind : uint8_t { Output, Source, Value, Tuple, List, Dict, Call } kind;
  int32_t index = 0;  // Output: of the program. Source
  View view;          // Output: data is the offset
  Ref<Node> history;  // Output: a record whose backward has run
  uint16_t output_index = 0;
  PyObject* value = nullptr;  // Value. Call: what is called with the items
  std::vector<PyObject*> keys;
  std::vector<ResultShape> items;
};

class CallReplay {
 public:
  struct Place {  // where a result goes; a gradient if `key` is null
    PyObject *owner, *key;
    int32_t source = -1;               // gradient of this source, if there is no owner
    std::optional<ResultShape> value;  // none: the gradient goes
  };
  struct BoundNumber {
    size_t number;
    PyObject *owner, *key;
  };
  CallReplay(CallRecord& record, TensorSources& sources);

  // A new reference; null without an exception where the call is another one: see `why`. Throws as operators do.
  PyObject* run(PyObject* args, PyObject* kwargs);
  std::string why;      // the last run was refused
  int64_t broken = -1;  // by this fact, if by one
  int64_t replays = 0;

  OwnedObjects owned;
  std::vector<Fact> facts;
  ArgumentShape args, kwargs;
  std::vector<BoundNumber> bound;
  std::vector<Place> places;
  ResultShape result;
  std::string bind_leaves(const CallRecord& record);  // why it cannot be done, or ""
  std::string bind_streams(const CallRecord& record);
  void finish() { sources_.finish(); }

 private:
  struct LeafBinding {
    int32_t source;    // or -1: constant memory
    int64_t distance;  // from its address
    bool whole;        // the very view of the source
    View view;
    Ref<Storage> storage;
  };
  struct StreamUse {
    Generator* generator;
    uint64_t advance;
    std::vector<size_t> seeds;
    std::vector<std::pair<size_t, uint64_t>> offsets;  // number, distance from the start
  };
  bool refuse(const char* reason) {
    why = reason;
    return false;
  }
  bool take(const ArgumentShape& shape, PyObject* given, SmallVector<Tensor*, 32>& tensors);
  using Tensors = SmallVector<Tensor*, 32>;
  bool find_tensors(const Tensors& arguments, Tensors& found);  // of all sources
  struct Made {
    const Tensors& found;
    const std::vector<Ref<Storage>>& storages;
  };
  PyObject* make(const ResultShape& shape, const Made& made) const;
  void put(const Place& place, const Made& made) const;
  std::vector<Ref<Storage>> take_outputs(PlanRun& run) const;

  Ref<Plan> program_;
  std::vector<Argument> numbers_;
  std::vector<int64_t> ints_;
  std::vector<int32_t> written_;
  std::vector<View> outputs_;
  TensorSources& sources_;
  std::vector<LeafBinding> leaves_;
  std::vector<StreamUse> streams_;
};

}  // namespace tandem
