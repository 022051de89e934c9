// Vertex programs whose function has no batching rule, or fails: one deferred call a vertex.
#include <algorithm>

#include "autobatch/batch.h"
#include "callbacks.h"
#include "check.h"
#include "tensor/generator.h"

namespace tandem {

namespace {

View row_of(const Tensor* block, int64_t k) {
  const View& b = block->view;
  View row;
  row.data = b.data + k * b.strides[0] * static_cast<int64_t>(item_size(b.dtype));
  row.dtype = b.dtype;
  row.ndim = b.ndim - 1;
  std::copy_n(b.shape + 1, row.ndim, row.shape);
  std::copy_n(b.strides + 1, row.ndim, row.strides);
  return row;
}

void push_tensor(SmallVector<Argument, 20>& list, Tensor* t) {
  Argument& a = list.emplace_back();
  a.kind = Argument::Kind::Tensor;
  a.tensor = t;
}

void push_integer(SmallVector<Argument, 20>& list, Argument::Kind kind, int64_t value, PyObject* object = nullptr) {
  Argument& a = list.emplace_back();
  a.kind = kind;
  a.integer = value;
  a.object = object;
}

}  // namespace

TensorList Batch::run_vertices(const Structure& structure, const VertexFunctions& functions, TensorList inputs,
                               size_t states) {
  const std::vector<int64_t> order = schedule_vertices(structure).order;
  std::vector<TensorList> results(structure.size());
  Generator* generator = default_generator();
  unit = "vertex";
  for (TensorRef& input : inputs) {  // as results of the batch, whose rows have gradients of their own
    PyObject* args[] = {input.object()};
    PyObject* copy = PyObject_Vectorcall(callbacks.clone, args, 1, nullptr);
    if (!copy) throw PythonError{};
    input = TensorRef::adopt(reinterpret_cast<Tensor*>(copy));
    TD_CHECK(holds(input->storage), "an input of a vertex program was not deferred");
  }
  for (int64_t v : order) {
    const int64_t begin = structure.offsets[v], count = structure.offsets[v + 1] - begin;
    const VertexFunction& function = functions.at(count);
    SmallVector<Argument, 20> arguments;
    SmallVector<TensorRef, 4> rows;
    push_integer(arguments, Argument::Kind::Count,
                 static_cast<int64_t>(inputs.size() + count * states + function.constants.size()));
    for (const TensorRef& input : inputs) {
      rows.push_back(view(input.get(), row_of(input.get(), v), true));
      push_tensor(arguments, rows[rows.size() - 1].get());
    }
    for (size_t s = 0; s < states; ++s)
      for (int64_t e = begin; e < begin + count; ++e) push_tensor(arguments, results[structure.children[e]][s].get());
    for (const TensorRef& constant : function.constants) push_tensor(arguments, constant.get());
    push_integer(arguments, Argument::Kind::Count, static_cast<int64_t>(function.numbers.size()));
    for (const Argument& number : function.numbers) arguments.push_back(number);
    push_integer(arguments, Argument::Kind::Count, static_cast<int64_t>(function.ints.size()));
    for (const Argument& i : function.ints) arguments.push_back(i);
    push_integer(arguments, Argument::Kind::Seed, static_cast<int64_t>(generator->seed),
                 reinterpret_cast<PyObject*>(generator));
    push_integer(arguments, Argument::Kind::Offset, static_cast<int64_t>(generator->offset));
    example = static_cast<int32_t>(v);
    bool returns_tuple = false;
    defers_vertices = true;
    results[v] = dispatch(function.op, arguments.data(), static_cast<int>(arguments.size()), &returns_tuple);
  }
  defers_vertices = false;
  example = -1;

  const size_t outputs = results.empty() ? 0 : results[0].size();
  std::vector<std::vector<Operand>> columns(outputs);
  for (size_t o = 0; o < outputs; ++o)
    for (TensorList& result : results) columns[o].push_back(operand_of(result[o].get(), grad_mode.enabled));
  inputs.clear();
  results.clear();  // tensors that nobody holds: gradients of their rows go straight to blocks
  run_waiting();
  TensorList made;
  for (std::vector<Operand>& column : columns) {
    Rows rows;
    for (const Operand& operand : column) rows.push_back(&operand);
    made.push_back(gather(rows, true));
    made[made.size() - 1]->inference = grad_mode.inference;
    for (Operand& operand : column) release(operand);
  }
  return made;
}

}  // namespace tandem
