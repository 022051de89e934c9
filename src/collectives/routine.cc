// collective (x...) -> y..., ints [kind, token, size, reduction, root, tag, n, sends..., m, takes...]: what the ranks
// of a group do together. token: the group; size: how many ranks the program was made for; sends, takes: rows for each
// rank and from each, where they differ. Operands and results may be the same memory.
#include <vector>

#include "check.h"
#include "collectives/communicator.h"
#include "collectives/reduce.h"
#include "library/registry.h"
#include "library/scratch.h"
#include "library/strided.h"

namespace tandem::collectives {

namespace {

constexpr int kFixed = 7;

// Rows of sends or takes as elements.
std::vector<int64_t> elements(const int64_t* rows, int64_t count, const View& of) {
  int64_t row = 1;
  for (int d = 1; d < of.ndim; ++d) row *= of.shape[d];
  std::vector<int64_t> made(rows, rows + count);
  for (int64_t& n : made) n *= row;
  return made;
}

void add_piece(Request& request, const View* in, const View* out, library::Scratch<char>& memory) {
  Piece piece;
  if (in) {
    piece.in_count = in->numel();
    piece.in = in->data;
    if (!in->is_contiguous()) {
      memory.resize(piece.in_count * item_size(in->dtype));
      View dense = *in;
      dense.data = memory.data();
      library::set_contiguous(dense);
      library::copy_elements(*in, dense);
      piece.in = dense.data;
    }
  }
  if (out) {
    TD_CHECK(out->is_contiguous());
    piece.out_count = out->numel();
    piece.out = out->data;
  }
  request.pieces.push_back(piece);
}

void run_collective(const library::Call& call) {
  TD_CHECK(call.num_ints >= kFixed);
  const int64_t* ints = call.ints;
  const std::shared_ptr<Context> context = Context::current();
  const std::shared_ptr<Communicator> group = context ? context->find(ints[1]) : nullptr;
  const auto kind = static_cast<Kind>(ints[0]);
  if (!group)
    fail(ErrorKind::Distributed, name_of(kind),
         ": this rank is not in the group, or the group was destroyed\n"
         "  fix: call td.distributed.init_process_group() first");
  if (group->size() != ints[2])
    fail(ErrorKind::Distributed, name_of(kind), ": made for ", ints[2], " ranks, and the group has ", group->size());
  Request request{kind};
  request.reduction = static_cast<Reduction>(ints[3]);
  request.root = static_cast<int>(ints[4]);
  request.tag = ints[5];
  const View& first = call.num_inputs ? call.inputs[0] : call.outputs[0];
  request.dtype = first.dtype;
  request.ndim = first.ndim;
  std::copy_n(first.shape, std::min(first.ndim, 8), request.shape);
  const int64_t sends = ints[6];
  TD_CHECK(call.num_ints >= kFixed + sends + 1);
  request.sends = elements(ints + kFixed, sends, first);
  const int64_t takes = ints[kFixed + sends];
  TD_CHECK(call.num_ints == kFixed + sends + 1 + takes);
  request.takes = elements(ints + kFixed + sends + 1, takes, first);
  std::vector<library::Scratch<char>> memory(std::max(call.num_inputs, 1));
  for (int i = 0; i < std::max(call.num_inputs, call.num_outputs); ++i)
    add_piece(request, i < call.num_inputs ? &call.inputs[i] : nullptr,
              i < call.num_outputs ? &call.outputs[i] : nullptr, memory[std::min<size_t>(i, memory.size() - 1)]);
  if (call.origin) {
    const std::string& file = call.origin->file;
    request.line = file.substr(file.rfind('/') + 1) + ":" + std::to_string(call.origin->line);
  } else {
    request.line = library::line_of_call;
  }
  group->run(request);
}

const library::Register register_collective("collective", &run_collective, false, true);

}  // namespace
}  // namespace tandem::collectives
