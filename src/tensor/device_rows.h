// Many rows on a device, copied or added by one launch.
//
// Note [Rows by one launch]
// What a group or a frontier is given lies in as many places as it has rows. A copy for each would take the host longer
// than the group itself, so one kernel of ours (rows_kernel in tandem/codegen/cuda/routines.py) goes over a table of
// addresses. Tables of up to kRowsByValue rows travel with the launch, as its arguments: nothing has to be copied to
// the device before, and nothing kept until it is done. Longer ones are copied there once. Gradients are added in the
// order of rows, whatever their addresses: rows that go to one place are neighbours in the table, and one thread adds
// them. So sums are the same in every run.
//
// Rows that one record of the tape adds are not added at once: those of other records may come before anybody reads
// the sums, and then one launch adds them all. Whoever reads sums calls launch_added_rows().
#pragma once
#include <cstddef>
#include <vector>

#include "small_vector.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace tandem {

extern bool rows_as_on_devices;  // host memory goes the ways of a device's: for tests
inline bool on_device(const Storage* storage) {
  return storage->device() || rows_as_on_devices;
}

inline constexpr size_t kRowsByValue = 240;
inline constexpr size_t kMostJoined = 4;  // blocks that one launch makes

// Rows of so many bytes each, one after the other to places of equally many. device: as storages have it; 0: the host.
void join_device_rows(int device, const std::vector<const char*>& rows, size_t bytes,
                      const SmallVector<char*, kMostJoined>& to);
inline void join_device_rows(int device, const std::vector<const char*>& rows, size_t bytes, char* to) {
  SmallVector<char*, kMostJoined> one;
  one.push_back(to);
  join_device_rows(device, rows, bytes, one);
}

void fill_zeros(char* data, size_t bytes, int device);  // or host memory, where device is 0

struct AddedRow {
  char* to;
  const char* from;
};
// Adds `elements` elements at each `from` to those at `to`. Sorts the rows.
void add_device_rows(int device, std::vector<AddedRow>& rows, DType dtype, int64_t elements);

// The same later, in this run of backward. distinct: no two go to one place, nor overlap. No row may go where one goes
// that waits already: places of rows that wait are told by the number of their launch.
void add_device_rows_later(TensorRef from, std::vector<AddedRow>& rows, DType dtype, int64_t elements, bool distinct);
uint64_t next_added_rows();  // the number of the launch that rows wait for
void launch_added_rows();
void forget_added_rows();  // that wait

}  // namespace tandem
