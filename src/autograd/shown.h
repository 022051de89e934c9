// Records that gradients pass by while nobody looks at them: rows of a batch that somebody holds.
#pragma once
#include "tensor/node.h"

namespace tandem {

void lead_through(RowNode* row);  // see Note [Gradients of rows] in autobatch/records.h

// Before a hook is added to a record, or backward hands its gradient out.
inline void show_gradients(Node* node) {
  if (RowNode* row = node->as_row()) lead_through(row);
}

}  // namespace tandem
