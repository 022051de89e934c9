// Zeros without writing any: memory that the system has just given is zero already.
#pragma once

namespace tandem {

// Of the block that this thread was given by `allocate` last.
bool latest_block_is_zero();

}  // namespace tandem
