// MPI, opened at run time by its standard ABI (MPI 5), which all implementations share. The declarations are our own;
// names and numbers are those of the standard.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>

namespace tandem::collectives::mpi {

using Comm = struct CommTag*;
using Group = struct GroupTag*;
using Request = struct RequestTag*;
using Type = struct TypeTag*;
using Errors = struct ErrorsTag*;
using Count = int64_t;
using Offset = intptr_t;

struct Api {
  int (*init)(int* argc, char*** argv, int required, int* provided);
  int (*initialized)(int* flag);
  int (*error_string)(int status, char* text, int* length);
  int (*library_version)(char* text, int* length);
  int (*set_errors)(Comm, Errors);
  int (*comm_group)(Comm, Group* made);
  int (*group_incl)(Group, int n, const int* ranks, Group* made);
  int (*group_free)(Group*);
  int (*create)(Comm, Group, int tag, Comm* made);
  int (*free)(Comm*);
  int (*test)(Request*, int* done, void* status);
  int (*barrier)(Comm, Request*);
  int (*all_gather)(const void* in, const Count in_count, Type, void* out, const Count* counts, const Offset* at, Type,
                    Comm, Request*);
  int (*all_to_all)(const void* in, const Count* in_counts, const Offset* in_at, Type, void* out,
                    const Count* out_counts, const Offset* out_at, Type, Comm, Request*);
  int (*broadcast)(void* data, Count, Type, int root, Comm, Request*);
  int (*send)(const void* data, Count, Type, int to, int tag, Comm, Request*);
  int (*receive)(void* data, Count, Type, int from, int tag, Comm, Request*);
};

inline const auto kWorld = reinterpret_cast<Comm>(uintptr_t{0x101});
inline const auto kNoRequest = reinterpret_cast<Request>(uintptr_t{0x180});
inline const auto kByte = reinterpret_cast<Type>(uintptr_t{0x247});
inline const auto kReturnErrors = reinterpret_cast<Errors>(uintptr_t{0x143});

// Opens the library and has this process join the others, by the service that PMI_PORT names. Once per process; the GIL
// is not held. Gives the library's own name.
std::string begin(const std::string& path);

const Api& api();                          // after begin
std::mutex& mutex();                       // held for every call: the library is asked for serialised calls
void check(int status, const char* what);  // throws

}  // namespace tandem::collectives::mpi
