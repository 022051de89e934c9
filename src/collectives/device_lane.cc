#include "collectives/device_lane.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "check.h"
#include "device/cuda/device.h"
#include "device/cuda/side_work.h"

namespace tandem::collectives {
namespace {

constexpr int kOpenSeconds = 60;

struct Wire {  // elements as NCCL has them
  int type, op;
  int64_t per_element;
};

std::optional<int> op_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::Sum:
      return nccl::kSum;
    case Reduction::Average:
      return nccl::kAverage;
    case Reduction::Product:
      return nccl::kProduct;
    case Reduction::Minimum:
      return nccl::kMinimum;
    case Reduction::Maximum:
      return nccl::kMaximum;
    default:
      return {};
  }
}

std::optional<int> type_of(DType dtype) {
  switch (dtype) {
    case DType::Int8:
      return nccl::kInt8;
    case DType::UInt8:
      return nccl::kUInt8;
    case DType::Int32:
      return nccl::kInt32;
    case DType::UInt32:
      return nccl::kUInt32;
    case DType::Int64:
      return nccl::kInt64;
    case DType::UInt64:
      return nccl::kUInt64;
    case DType::Float16:
      return nccl::kFloat16;
    case DType::BFloat16:
      return nccl::kBFloat16;
    case DType::Float32:
    case DType::Complex64:
      return nccl::kFloat32;
    case DType::Float64:
    case DType::Complex128:
      return nccl::kFloat64;
    default:
      return {};
  }
}

bool reduces(Kind kind) {
  return kind == Kind::AllReduce || kind == Kind::Reduce || kind == Kind::ReduceScatter;
}

std::optional<Wire> wire_of(const Request& request) {
  const auto item = static_cast<int64_t>(item_size(request.dtype));
  const Reduction reduction = request.reduction;
  if (!reduces(request.kind)) return Wire{nccl::kUInt8, nccl::kSum, item};
  if (request.dtype == DType::Bool) {  // 0 and 1
    const bool any = reduction == Reduction::Sum || reduction == Reduction::Maximum || reduction == Reduction::Or;
    const bool all = reduction == Reduction::Product || reduction == Reduction::Minimum || reduction == Reduction::And;
    if (!any && !all) return {};
    return Wire{nccl::kUInt8, any ? nccl::kMaximum : nccl::kMinimum, 1};
  }
  const bool extremum = reduction == Reduction::Minimum || reduction == Reduction::Maximum;
  if (extremum && is_floating(request.dtype)) return {};  // a NaN wins, which NCCL does not promise
  if (is_complex(request.dtype) && reduction != Reduction::Sum && reduction != Reduction::Average) return {};
  const std::optional<int> type = type_of(request.dtype), op = op_of(reduction);
  if (!type || !op) return {};
  return Wire{*type, *op, is_complex(request.dtype) ? 2 : 1};
}

}  // namespace

bool has_device_routine(const Request& request) {
  return wire_of(request).has_value();
}

// NCCL waits for the others without end; so another thread does, which is left to itself if one of them fails.
std::shared_ptr<DeviceLane> DeviceLane::open(int device, int rank, int size, const nccl::UniqueId& id,
                                             const std::function<void()>& look) {
  struct Opening {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    int status = 0;
    nccl::Comm comm = nullptr;
  };
  const auto state = std::make_shared<Opening>();
  std::thread([=] {
    nccl::Comm comm = nullptr;
    int status = 1;
    try {
      cuda::activate(device);
      status = nccl::api(nullptr)->init_rank(&comm, size, id, rank);
    } catch (const Error&) {  // no such device: the caller's own calls tell
    }
    const std::lock_guard guard(state->mutex);
    state->done = true;
    state->status = status;
    state->comm = comm;
    state->changed.notify_all();
  }).detach();
  std::unique_lock lock(state->mutex);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kOpenSeconds);
  while (!state->changed.wait_for(lock, std::chrono::milliseconds(20), [&] { return state->done; })) {
    lock.unlock();
    if (std::chrono::steady_clock::now() > end)
      fail(ErrorKind::Distributed, "NCCL: rank ", rank, " of ", size, " has waited ", kOpenSeconds,
           " s for ncclCommInitRank on cuda:", device,
           ", and it has not come back\n  fix: NCCL_DEBUG=INFO prints what it ",
           "does; ranks that share a device need NCCL 2.31 or later");
    look();
    lock.lock();
  }
  nccl::check(state->status, "beginning a group");
  return std::shared_ptr<DeviceLane>(new DeviceLane(device, rank, size, state->comm));
}

DeviceLane::DeviceLane(int device, int rank, int size, nccl::Comm comm)
    : device_(device), rank_(rank), size_(size), comm_(comm) {
  const cuda::Driver& d = cuda::driver();
  cuda::activate(device);
  constexpr unsigned kNonBlocking = 1;
  constexpr int kHighest = -100;  // the driver takes the nearest that it has
  cuda::check(d.stream_create(&stream_, kNonBlocking, kHighest), "making a stream");
  begin_ = cuda::new_event();
  cuda::Address word = 0;
  cuda::check(d.allocate(&word, 8), "allocating device memory");
  token_ = reinterpret_cast<char*>(word);
}

DeviceLane::~DeviceLane() {
  give_up();
  const cuda::Driver& d = cuda::driver();
  if (begin_) d.event_destroy(begin_);
  if (stream_) d.stream_destroy(stream_);
  if (token_) d.free(reinterpret_cast<cuda::Address>(token_));
}

bool DeviceLane::is_idle() const {
  return cuda::driver().stream_query(stream_) != cuda::kNotReady;
}

void DeviceLane::give_up() noexcept {
  if (!gave_up_.exchange(true)) nccl::api(nullptr)->abort(comm_);
}

void DeviceLane::queue(const Request& request, cuda::Stream after) {
  const cuda::Driver& d = cuda::driver();
  cuda::activate(device_);
  cuda::check(d.event_record(begin_, after), "noting an event");
  cuda::check(d.stream_wait_event(stream_, begin_, 0), "waiting for an event");
  call(request);
  const cuda::Event done = cuda::new_event();
  std::vector<cuda::SideWork::Span> memory;
  const auto item = static_cast<int64_t>(item_size(request.dtype));
  for (const Piece& piece : request.pieces) {
    if (piece.in) memory.emplace_back(piece.in, piece.in + piece.in_count * item);
    if (piece.out) memory.emplace_back(piece.out, piece.out + piece.out_count * item);
  }
  cuda::SideWork work(done, std::move(memory), request.kept);
  cuda::check(d.event_record(done, stream_), "noting an event");
  cuda::leave_side_work(std::move(work));
}

void DeviceLane::call(const Request& request) {
  const nccl::Api& n = *nccl::api(nullptr);
  const Wire wire = *wire_of(request);
  const auto count = [&](int64_t elements) { return static_cast<size_t>(elements * wire.per_element); };
  const char* what = name_of(request.kind);
  const Piece& first = request.pieces[0];
  const auto zero = [&](char* memory, int64_t elements) {
    cuda::check(cuda::driver().set_bytes(reinterpret_cast<cuda::Address>(memory), 0,
                                         static_cast<size_t>(elements) * item_size(request.dtype), stream_),
                "filling memory");
  };
  const auto copy = [&](const Piece& piece) {
    if (piece.in == piece.out || !piece.out_count) return;
    cuda::check(cuda::driver().copy_on_device(reinterpret_cast<cuda::Address>(piece.out),
                                              reinterpret_cast<cuda::Address>(piece.in),
                                              static_cast<size_t>(piece.out_count) * item_size(request.dtype), stream_),
                "copying on the device");
  };
  switch (request.kind) {
    case Kind::AllReduce:
      nccl::check(n.group_start(), what);
      for (const Piece& p : request.pieces)
        nccl::check(n.all_reduce(p.in, p.out, count(p.in_count), wire.type, wire.op, comm_, stream_), what);
      return nccl::check(n.group_end(), what);
    case Kind::Broadcast:
      nccl::check(n.group_start(), what);
      for (const Piece& p : request.pieces)
        nccl::check(n.broadcast(p.in, p.out, count(p.in_count), wire.type, request.root, comm_, stream_), what);
      return nccl::check(n.group_end(), what);
    case Kind::Reduce:
      nccl::check(
          n.reduce(first.in, first.out, count(first.in_count), wire.type, wire.op, request.root, comm_, stream_), what);
      if (rank_ != request.root) zero(first.out, first.out_count);
      return;
    case Kind::Barrier:
      nccl::check(n.all_reduce(token_, token_, 1, nccl::kUInt8, nccl::kMaximum, comm_, stream_), what);
      return copy(first);
    case Kind::Send:
      nccl::check(n.send(first.in, count(first.in_count), wire.type, 1, comm_, stream_), what);
      if (first.out) zero(first.out, first.out_count);
      return;
    case Kind::Receive:
      return nccl::check(n.receive(first.out, count(first.out_count), wire.type, 0, comm_, stream_), what);
    default:
      return exchange(request);
  }
}

// all_gather, reduce_scatter, all_to_all; in parts of different sizes they are several calls that NCCL does as one.
void DeviceLane::exchange(const Request& request) {
  const nccl::Api& n = *nccl::api(nullptr);
  const Wire wire = *wire_of(request);
  const char* what = name_of(request.kind);
  const Piece& piece = request.pieces[0];
  const auto item = static_cast<int64_t>(item_size(request.dtype));
  const auto count = [&](int64_t elements) { return static_cast<size_t>(elements * wire.per_element); };
  const bool uneven = !request.takes.empty();
  if (request.kind == Kind::AllGather && !uneven)
    return nccl::check(n.all_gather(piece.in, piece.out, count(piece.in_count), wire.type, comm_, stream_), what);
  if (request.kind == Kind::ReduceScatter && !uneven)
    return nccl::check(
        n.reduce_scatter(piece.in, piece.out, count(piece.out_count), wire.type, wire.op, comm_, stream_), what);
  nccl::check(n.group_start(), what);
  int64_t from = 0, to = 0;
  for (int r = 0; r < size_; ++r) {
    if (request.kind == Kind::AllGather) {
      nccl::check(n.broadcast(piece.in, piece.out + to * item, count(request.takes[r]), wire.type, r, comm_, stream_),
                  what);
      to += request.takes[r];
    } else if (request.kind == Kind::ReduceScatter) {
      nccl::check(
          n.reduce(piece.in + from * item, piece.out, count(request.takes[r]), wire.type, wire.op, r, comm_, stream_),
          what);
      from += request.takes[r];
    } else {
      const int64_t sent = uneven ? request.sends[r] : piece.in_count / size_;
      const int64_t taken = uneven ? request.takes[r] : piece.out_count / size_;
      nccl::check(n.send(piece.in + from * item, count(sent), wire.type, r, comm_, stream_), what);
      nccl::check(n.receive(piece.out + to * item, count(taken), wire.type, r, comm_, stream_), what);
      from += sent;
      to += taken;
    }
  }
  nccl::check(n.group_end(), what);
}

}  // namespace tandem::collectives
