#include "collectives/nccl.h"

#include <Python.h>

#include <memory>
#include <mutex>

#include "check.h"
#include "library/cuda/open.h"

namespace tandem::collectives::nccl {
namespace {

const Api* made = nullptr;
std::string problem;

void open() {
  const PyGILState_STATE state = PyGILState_Ensure();
  try {
    const cuda::LoadFrom load("nccl");
    auto a = std::make_unique<Api>();
    load(a->get_version, "ncclGetVersion");
    load(a->get_unique_id, "ncclGetUniqueId");
    load(a->init_rank, "ncclCommInitRank");
    load(a->abort, "ncclCommAbort");
    load(a->error_string, "ncclGetErrorString");
    load(a->last_error, "ncclGetLastError");
    load(a->group_start, "ncclGroupStart");
    load(a->group_end, "ncclGroupEnd");
    load(a->all_reduce, "ncclAllReduce");
    load(a->reduce, "ncclReduce");
    load(a->broadcast, "ncclBroadcast");
    load(a->all_gather, "ncclAllGather");
    load(a->reduce_scatter, "ncclReduceScatter");
    load(a->send, "ncclSend");
    load(a->receive, "ncclRecv");
    made = a.release();
  } catch (const Error& error) {
    problem = error.what();
  }
  PyGILState_Release(state);
}

}  // namespace

const Api* api(std::string* why) {
  static std::once_flag once;
  std::call_once(once, open);
  if (why) *why = problem;
  return made;
}

void check(int status, const char* what) {
  if (!status) return;
  const char* details = made->last_error(nullptr);
  fail(ErrorKind::Distributed, "NCCL: ", what, " failed: ", made->error_string(status),
       details && *details ? std::string(" (") + details + ")" : "");
}

}  // namespace tandem::collectives::nccl
