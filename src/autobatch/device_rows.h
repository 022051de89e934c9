// Many rows on a device, copied or added by one launch.
//
// Note [Rows by one launch]
// What a group or a frontier is given lies in as many places as it has rows. A copy for each would take the host longer
// than the group itself, so one kernel of ours (rows_kernel in tandem/codegen/cuda/routines.py) goes over a table of
// addresses. Tables of up to kRowsByValue rows travel with the launch, as its arguments: nothing has to be copied to
// the device before, and nothing kept until it is done. Longer ones are copied there once. Gradients are added in the
// order of rows, whatever their addresses: rows that go to one place are neighbours in the table, and one thread adds
// them. So sums are the same in every run.
#pragma once
#include <cstddef>
#include <vector>

#include "tensor/dtype.h"

namespace tandem {

inline constexpr size_t kRowsByValue = 240;

// Rows of so many bytes each, one after the other to `to`. device: as storages have it, from 1 on.
void join_device_rows(int device, const std::vector<const char*>& rows, size_t bytes, char* to);

struct AddedRow {
  char* to;
  const char* from;
};
// Adds `elements` elements at each `from` to those at `to`. Sorts the rows.
void add_device_rows(int device, std::vector<AddedRow>& rows, DType dtype, int64_t elements);

}  // namespace tandem
