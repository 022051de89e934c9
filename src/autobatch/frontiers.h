// Vertex programs, frontier by frontier.
//
// Note [Frontiers]
// Vertices at one depth that take from equally many others are a frontier: one call of the vertex function, batched
// (group_call.h), on the rows of its inputs and the states of its children. Rows that lie side by side are used where
// they are, others are copied together, and nothing is made for a single vertex. Each call is recorded as usual; what
// leads from frontier to frontier is a RowsNode for each operand, which adds gradients to the sums of the blocks that
// its rows are of (Note [Gradients of rows] in records.h). So backward goes over the frontiers the other way round.
// On devices a launch costs more than what it does, so few are made: rows are joined and added by one each (Note [Rows
// by one launch] in tensor/device_rows.h), and inputs are put in the order of the frontiers first, after which a frontier has
// its part of each where it lies.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "operators/op_function.h"

namespace tandem {

struct Structure {                // what vertices take from others, as rows of a matrix in CSR form
  std::vector<int64_t> offsets;   // one more than there are vertices
  std::vector<int64_t> children;  // by vertex
  int64_t size() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t count(int64_t v) const { return offsets[v + 1] - offsets[v]; }
};

struct Schedule {
  struct Frontier {
    int64_t begin, end;  // of the order
    int64_t count;       // how many others each of them takes from
  };
  std::vector<int64_t> order;  // vertices after all that they take from
  std::vector<Frontier> frontiers;
};

// Throws Error(Value) where there is a cycle, Error(Index) where a vertex does not exist.
Schedule schedule_vertices(const Structure& structure);

struct VertexFunction {
  // Of a list of tensors (a vertex's inputs, states of others, constants), numbers, integers, and a generator.
  OpFunction* op;
  std::vector<TensorRef> constants;
  std::vector<Argument> numbers, ints;
};
using VertexFunctions = std::unordered_map<int64_t, VertexFunction>;  // by how many others a vertex takes from

// Calls functions on all vertices; inputs have a row for each, and so have results. For each state, a function has one
// operand, the states of a vertex's children. states: what one vertex's look like. False where this cannot be done:
// vertices then have to run by themselves, and errors of one show there.
bool run_frontiers(const Structure& structure, const VertexFunctions& functions, const TensorList& inputs,
                   const TensorList& states, TensorList& results);

}  // namespace tandem
