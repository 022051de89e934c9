// collective (x...) -> y..., ints [kind, token, size, reduction, root, tag, n, sends..., m, takes...]: what the ranks
// of a group do together. token: the group; size: how many ranks the program was made for; sends, takes: rows for each
// rank and from each, where they differ. Operands and results may be the same memory.
// collective_begin, collective_await: the same in two calls.
#include <cstring>
#include <vector>

#include "check.h"
#include "collectives/background.h"
#include "collectives/communicator.h"
#include "collectives/reduce.h"
#include "device/cuda/launches.h"
#include "library/cuda/host.h"
#include "library/cuda/open.h"
#include "library/registry.h"
#include "library/scratch.h"
#include "library/strided.h"
#include "tensor/device_copy.h"

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

Piece piece_of(const View* in, const View* out) {
  Piece piece;
  if (in) {
    piece.in_count = in->numel();
    piece.in = in->data;
  }
  if (out) {
    TD_CHECK(out->is_contiguous());
    piece.out_count = out->numel();
    piece.out = out->data;
  }
  return piece;
}

// The operand in memory of its own, which has room for it.
View dense_in(char* memory, const View& of) {
  View dense = of;
  dense.data = memory;
  library::set_contiguous(dense);
  return dense;
}

size_t bytes_of(const View& v) {
  return static_cast<size_t>(v.numel()) * item_size(v.dtype);
}

std::shared_ptr<Communicator> group_of(const library::Call& call) {
  TD_CHECK(call.num_ints >= kFixed);
  const std::shared_ptr<Context> context = Context::current();
  std::shared_ptr<Communicator> group = context ? context->find(call.ints[1]) : nullptr;
  const char* name = name_of(static_cast<Kind>(call.ints[0]));
  if (!group)
    fail(ErrorKind::Distributed, name,
         ": this rank is not in the group, or the group was destroyed\n"
         "  fix: call td.distributed.init_process_group() first");
  if (group->size() != call.ints[2])
    fail(ErrorKind::Distributed, name, ": made for ", call.ints[2], " ranks, and the group has ", group->size());
  return group;
}

Request request_of(const library::Call& call) {
  const int64_t* ints = call.ints;
  Request request{static_cast<Kind>(ints[0])};
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
  for (int i = 0; i < std::max(call.num_inputs, call.num_outputs); ++i)
    request.pieces.push_back(
        piece_of(i < call.num_inputs ? &call.inputs[i] : nullptr, i < call.num_outputs ? &call.outputs[i] : nullptr));
  if (call.origin) {
    const std::string& file = call.origin->file;
    request.line = file.substr(file.rfind('/') + 1) + ":" + std::to_string(call.origin->line);
  } else {
    request.line = library::line_of_call;
  }
  return request;
}

// What this rank has begun, or given to a thread, comes first; messages have ways of their own.
void come_after(Communicator& group, const Request& request) {
  if (group.has_background() && request.kind != Kind::Send && request.kind != Kind::Receive)
    group.background().finish();
}

void run_collective(const library::Call& call) {
  const std::shared_ptr<Communicator> group = group_of(call);
  Request request = request_of(call);
  std::vector<library::Scratch<char>> memory(std::max(call.num_inputs, 1));
  for (int i = 0; i < call.num_inputs; ++i) {
    if (call.inputs[i].is_contiguous()) continue;
    memory[i].resize(bytes_of(call.inputs[i]));
    library::copy_elements(call.inputs[i], dense_in(memory[i].data(), call.inputs[i]));
    request.pieces[i].in = memory[i].data();
  }
  come_after(*group, request);
  request.updates = call.updates, request.num_updates = call.num_updates;
  if (group->takes_factors())
    request.factors = call.factors, request.num_factors = call.num_factors;
  else
    for (int i = 0; i < call.num_factors; ++i) call.factors[i].multiply();
  group->run(request);
  for (const Piece& piece : request.pieces)  // what a barrier gives is its operand
    if (request.kind == Kind::Barrier && piece.out != piece.in)
      std::memcpy(piece.out, piece.in, piece.in_count * item_size(request.dtype));
  for (int i = 0; i < call.num_updates; ++i)
    if (!call.updates[i].done) call.updates[i].run_whole();
}

// The same, begun; await_collective comes later, with the same operands. Note [Begun collectives] in background.h.
void begin_collective(const library::Call& call) {
  const std::shared_ptr<Communicator> group = group_of(call);
  Request request = request_of(call);
  auto memory = std::make_shared<std::vector<std::unique_ptr<char[]>>>();
  for (int i = 0; i < call.num_inputs; ++i) {
    if (call.inputs[i].is_contiguous()) continue;
    memory->push_back(std::make_unique_for_overwrite<char[]>(bytes_of(call.inputs[i])));
    library::copy_elements(call.inputs[i], dense_in(memory->back().get(), call.inputs[i]));
    request.pieces[i].in = memory->back().get();
  }
  request.kept = memory;
  group->background().begin(std::move(request));
}

void await_collective(const library::Call& call) {
  group_of(call)->background().wait(call.outputs[0].data);
}

// NCCL has results over their operands where both have one size.
bool needs_copy(const Request& request, const View& in, const Piece& piece) {
  if (!in.is_contiguous()) return true;
  const bool moves =
      request.kind == Kind::AllGather || request.kind == Kind::ReduceScatter || request.kind == Kind::AllToAll;
  const auto item = static_cast<int64_t>(item_size(request.dtype));
  return moves && piece.in < piece.out + piece.out_count * item && piece.out < piece.in + piece.in_count * item;
}

// The same for operands on a device, queued there.
void queue_collective(const library::Call& call) {
  const std::shared_ptr<Communicator> group = group_of(call);
  Request request = request_of(call);
  request.on_device = true;
  auto memory = std::make_shared<std::vector<std::unique_ptr<cuda::Workspace>>>();
  for (int i = 0; i < call.num_inputs; ++i) {
    Piece& piece = request.pieces[i];
    if (!needs_copy(request, call.inputs[i], piece)) continue;
    memory->push_back(std::make_unique<cuda::Workspace>(call.device, bytes_of(call.inputs[i])));
    cuda::copy_elements(call.device, call.inputs[i], dense_in(memory->back()->data(), call.inputs[i]));
    piece.in = memory->back()->data();
  }
  request.kept = memory;
  bool queued;
  {
    const cuda::GilReleased released;
    come_after(*group, request);
    queued = group->queue(request, call.device, static_cast<cuda::Stream>(call.stream));
  }
  if (queued) return;
  if (cuda::recording) fail(ErrorKind::Unsupported, "a collective through host memory cannot be recorded");
  cuda::call_on_host(&run_collective, call);
}

const library::Register register_collective("collective", &run_collective, false, true);
const library::Register register_begin("collective_begin", &begin_collective, false, true);
const library::Register register_await("collective_await", &await_collective, false, true);
const library::Register register_on_devices("cuda.collective", &queue_collective, false, true);

}  // namespace
}  // namespace tandem::collectives
