// Calls that are replayed, for Python: what tandem/replay is made of. See Note [Replayed calls].
#include "capture/call_replay.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "autograd/record.h"
#include "bindings/bindings.h"
#include "check.h"
#include "interpreter.h"

namespace nb = nanobind;

namespace tandem {

namespace {

Tensor* tensor_of(nb::handle h) {
  if (!is_tensor(h.ptr())) throw nb::type_error("expected a tandem.Tensor");
  return reinterpret_cast<Tensor*>(h.ptr());
}

PyObject* or_null(nb::handle h) {
  return h.is_none() ? nullptr : h.ptr();
}

// (0,) a tensor, (1, value), (2, object), (3, items) tuple, (4, items) list, (5, items, keys) dict
ArgumentShape argument_shape(nb::handle h, OwnedObjects& owned) {
  const auto description = nb::cast<nb::tuple>(h);
  ArgumentShape shape;
  shape.kind = static_cast<ArgumentShape::Kind>(nb::cast<int>(description[0]));
  if (shape.kind == ArgumentShape::Kind::Value || shape.kind == ArgumentShape::Kind::Object)
    shape.expected = owned.own(nb::object(description[1]).ptr());
  if (shape.kind >= ArgumentShape::Kind::Tuple)
    for (nb::handle item : nb::list(description[1])) shape.items.push_back(argument_shape(item, owned));
  if (shape.kind == ArgumentShape::Kind::Dict)
    for (nb::handle key : nb::list(description[2])) shape.keys.push_back(owned.own(key.ptr()));
  return shape;
}

// (0, tensor, output), (1, source), (2, value), (3, items) tuple, (4, items) list, (5, items, keys) dict,
// (6, items, callable)
ResultShape result_shape(nb::handle h, OwnedObjects& owned) {
  const auto description = nb::cast<nb::tuple>(h);
  ResultShape shape;
  shape.kind = static_cast<ResultShape::Kind>(nb::cast<int>(description[0]));
  switch (shape.kind) {
    case ResultShape::Kind::Output: {
      const Tensor* t = tensor_of(nb::object(description[1]));
      shape.index = nb::cast<int>(description[2]);
      shape.view = t->view;
      shape.view.data = reinterpret_cast<char*>(t->view.data - t->storage->data());
      if (t->history) shape.history = Ref<Node>::share(t->history);
      shape.output_index = t->output_index;
      break;
    }
    case ResultShape::Kind::Source:
      shape.index = nb::cast<int>(description[1]);
      break;
    case ResultShape::Kind::Value:
      shape.value = owned.own(nb::object(description[1]).ptr());
      break;
    default:
      for (nb::handle item : nb::list(description[1])) shape.items.push_back(result_shape(item, owned));
      if (shape.kind == ResultShape::Kind::Dict)
        for (nb::handle key : nb::list(description[2])) shape.keys.push_back(owned.own(key.ptr()));
      if (shape.kind == ResultShape::Kind::Call) shape.value = owned.own(nb::object(description[2]).ptr());
  }
  return shape;
}

std::vector<Fact> facts_of(const nb::list& descriptions, OwnedObjects& owned) {
  std::vector<Fact> facts;
  try {
    for (nb::handle d : descriptions) facts.push_back(fact_from_python(d.ptr(), owned));
  } catch (const PythonError&) {
    nb::raise_python_error();
  }
  return facts;
}

// The collector has to see what a replay holds: the function's own object may be among it.
template <typename T>
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<T>(self)->owned.visit(visit, arg) : 0;
}
template <typename T>
int clear(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<T>(self)->owned.clear();
  return 0;
}
template <typename T>
PyType_Slot collected[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse<T>)},
                           {Py_tp_clear, reinterpret_cast<void*>(clear<T>)},
                           {0, nullptr}};

}  // namespace

void register_call_replay(nb::module_& m) {
  nb::class_<CallRecord>(m, "CallRecord")
      .def(nb::init<>())
      .def_ro("problem", &CallRecord::problem)
      .def_ro("programs", &CallRecord::programs)
      .def(
          "add_stream",  // a generator that the call may use; None: the default one
          [](CallRecord& r, nb::handle h) {
            Generator* g = h.is_none() ? default_generator() : as_generator(h.ptr());
            if (!g) throw nb::type_error("expected a Generator");
            r.streams.push_back({g, g->seed, g->offset});
          },
          nb::arg("generator").none())
      .def("floats",  // [(number, address of the float object that it came from)]
           [](const CallRecord& r) {
             nb::list found;
             for (size_t i = 0; i < r.numbers.size(); ++i)
               if (r.numbers[i].kind == Argument::Kind::Float && r.numbers[i].object)
                 found.append(nb::make_tuple(i, reinterpret_cast<uintptr_t>(r.numbers[i].object)));
             return found;
           })
      .def_prop_ro("num_outputs", [](const CallRecord& r) { return r.outputs.size(); })
      .def("output_of", [](const CallRecord& r, nb::handle h) {
        const Storage* storage = tensor_of(h)->storage;
        for (size_t k = 0; k < r.outputs.size(); ++k)
          if (r.outputs[k].storage.get() == storage) return static_cast<int>(k);
        return -1;
      });
  nb::class_<TensorSources>(m, "TensorSources", nb::type_slots(collected<TensorSources>))
      .def(nb::init<>())
      .def(
          "add",
          [](TensorSources& s, int from, int index, nb::handle object, nb::handle key, nb::handle tensor) {
            s.add(static_cast<TensorSources::From>(from), index, or_null(object), or_null(key), tensor_of(tensor));
          },
          nb::arg("from_"), nb::arg("index"), nb::arg("object").none(), nb::arg("key").none(), nb::arg("tensor"))
      .def("retarget",  // the tensor is whatever lies there at each call
           [](TensorSources& s, size_t number, nb::handle object, nb::handle key) {
             TensorSources::Source& source = s.sources.at(number);
             source.from = TensorSources::From::Item;
             source.object = object.ptr();
             source.key = key.ptr();
           })
      .def("__len__", [](const TensorSources& s) { return s.sources.size(); });
  nb::class_<CallReplay>(m, "CallReplay", nb::type_slots(collected<CallReplay>))
      .def(nb::init<CallRecord&, TensorSources&>(), nb::keep_alive<1, 3>())
      .def("describe",  // "" or why it cannot be replayed
           [](CallReplay& r, CallRecord& record, nb::list facts, nb::handle args, nb::handle kwargs, nb::list places,
              nb::list bound, nb::handle result) {
             r.facts = facts_of(facts, r.owned);
             r.args = argument_shape(args, r.owned);
             r.kwargs = argument_shape(kwargs, r.owned);
             r.result = result_shape(result, r.owned);
             for (nb::handle h : places) {  // (owner, key, source, result or None)
               const auto d = nb::cast<nb::tuple>(h);
               CallReplay::Place place{r.owned.own(or_null(nb::object(d[0]))), r.owned.own(or_null(nb::object(d[1]))),
                                       nb::cast<int>(d[2]), std::nullopt};
               if (!nb::object(d[3]).is_none()) place.value = result_shape(nb::object(d[3]), r.owned);
               r.places.push_back(std::move(place));
             }
             for (nb::handle h : bound) {  // (number, dict, key)
               const auto d = nb::cast<nb::tuple>(h);
               r.bound.push_back(
                   {nb::cast<size_t>(d[0]), r.owned.own(nb::object(d[1]).ptr()), r.owned.own(nb::object(d[2]).ptr())});
             }
             std::string problem = r.bind_leaves(record);
             if (problem.empty()) problem = r.bind_streams(record);
             r.finish();
             return problem;
           })
      .def("run",  // the result, or this object where the call is another one
           [](nb::handle self, nb::handle args, nb::handle kwargs) {
             CallReplay& r = *nb::inst_ptr<CallReplay>(self);
             try {
               PyObject* made = r.run(args.ptr(), kwargs.ptr());
               return made ? nb::steal(made) : nb::borrow(self);
             } catch (const PythonError&) {
               nb::raise_python_error();
             }
           })
      .def_ro("why", &CallReplay::why)
      .def_ro("broken", &CallReplay::broken)
      .def_ro("replays", &CallReplay::replays);
  m.def("broken_facts", [](nb::list descriptions) {  // which of them do not hold now
    OwnedObjects owned;
    const std::vector<Fact> facts = facts_of(descriptions, owned);
    nb::list found;
    for (size_t i = 0; i < facts.size(); ++i)
      if (!holds(facts[i])) found.append(i);
    return found;
  });
  m.def("class_version", [](nb::handle type) {
    if (!PyType_Check(type.ptr())) throw nb::type_error("expected a class");
    return version_of(reinterpret_cast<PyTypeObject*>(type.ptr()));
  });
  // Whether a class statement made it; `known` is one of which that is known.
  m.def("is_python_class", [](nb::handle type, nb::handle known) {
    if (!PyType_Check(type.ptr()) || !PyType_Check(known.ptr())) throw nb::type_error("expected two classes");
    const auto* t = reinterpret_cast<PyTypeObject*>(type.ptr());
    return (t->tp_flags & Py_TPFLAGS_HEAPTYPE) && !(t->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) &&
           t->tp_dealloc == reinterpret_cast<PyTypeObject*>(known.ptr())->tp_dealloc;
  });
  m.def("same_value", [](nb::handle a, nb::handle b) { return same_value(a.ptr(), b.ptr()); });
  // What the history of a tensor would need: 0 nothing, 1 a record whose backward has run, 2 one that may still run.
  m.def("history_state", [](nb::handle h) {
    const Tensor* t = tensor_of(h);
    if (!t->history) return 0;
    PlanNode* node = t->history->as_plan_node();
    return node && node->passed ? 1 : 2;
  });
  m.def("has_hooks", [](nb::handle h) {
    const Tensor* t = tensor_of(h);
    return t->extra && (t->extra->hooks || t->extra->after);
  });
}

}  // namespace tandem
