#include "autobatch/group_call.h"

#include "callbacks.h"

namespace tandem {

static PyObject* tuple_of(const std::vector<bool>& flags) {
  PyObject* list = PyTuple_New(static_cast<Py_ssize_t>(flags.size()));
  for (size_t i = 0; i < flags.size(); ++i)
    PyTuple_SET_ITEM(list, static_cast<Py_ssize_t>(i), Py_NewRef(flags[i] ? Py_True : Py_False));
  return list;
}

std::shared_ptr<GroupFunction> group_function(const Ref<Plan>& plan, const std::vector<bool>& flags) {
  using Key = std::pair<const Plan*, std::vector<bool>>;
  static auto* functions = new std::map<Key, std::shared_ptr<GroupFunction>>();  // GIL
  constexpr size_t kMost = 4096;
  if (functions->size() >= kMost) functions->clear();
  const Key key{plan.get(), flags};
  if (auto found = functions->find(key); found != functions->end()) return found->second;
  PyObject* list = tuple_of(flags);
  PyObject* args[] = {plan->keep, list};
  PyObject* made = PyObject_Vectorcall(callbacks.batch_plan, args, 2, nullptr);
  Py_DECREF(list);
  if (!made) throw PythonError{};
  return (*functions)[key] = std::make_shared<GroupFunction>(made, plan);
}

CellFunction::~CellFunction() {
  for (Call& call : calls) Py_XDECREF(call.operands);
}

void CellFunction::add_output(size_t call, size_t output) {
  if (calls[call].outputs[output]) return;
  calls[call].outputs[output] = true;
  programs_.clear();
}

std::shared_ptr<CellFunction::Program> CellFunction::program(const std::vector<bool>& flags) {
  if (auto found = programs_.find(flags); found != programs_.end()) return found->second;
  auto made = std::make_shared<Program>(calls);
  PyObject* list = PyTuple_New(static_cast<Py_ssize_t>(calls.size()));
  for (size_t i = 0; i < calls.size(); ++i)
    PyTuple_SET_ITEM(list, static_cast<Py_ssize_t>(i),  // -> CellCall
                     Py_BuildValue("OON", calls[i].joins ? Py_None : calls[i].plan->keep, calls[i].operands,
                                   tuple_of(calls[i].outputs)));
  PyObject* differ = tuple_of(flags);
  PyObject* args[] = {list, differ};
  made->op = PyObject_Vectorcall(callbacks.batch_cell, args, 2, nullptr);  // other threads may run meanwhile
  Py_DECREF(list);
  Py_DECREF(differ);
  if (!made->op) throw PythonError{};
  bool same = true;
  for (size_t i = 0; i < calls.size(); ++i) same &= calls[i].outputs == made->outputs[i];
  if (same) programs_[flags] = made;
  return made;
}

static TensorRef call_one(PyObject* function, Tensor* t) {
  PyObject* args[] = {reinterpret_cast<PyObject*>(t)};
  PyObject* made = PyObject_Vectorcall(function, args, 1, nullptr);
  if (!made) throw PythonError{};
  return TensorRef::adopt(reinterpret_cast<Tensor*>(made));
}

void own_blocks(TensorList& blocks, const CallArguments& arguments) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    bool shared = false;
    for (const TensorRef& t : arguments.owned) shared |= t->storage == blocks[i]->storage;
    for (size_t j = 0; j < i; ++j) shared |= blocks[j]->storage == blocks[i]->storage;
    if (shared) blocks[i] = call_one(callbacks.clone, blocks[i].get());
    if (!blocks[i]->view.is_contiguous()) blocks[i] = call_one(callbacks.contiguous, blocks[i].get());
  }
}

bool is_number(Argument::Kind kind) {
  return kind == Argument::Kind::Float || kind == Argument::Kind::Complex || kind == Argument::Kind::Integer ||
         kind == Argument::Kind::Bool || kind == Argument::Kind::Seed || kind == Argument::Kind::Offset;
}

}  // namespace tandem
