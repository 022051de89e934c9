"""Nested tensors: batches of tensors of different lengths, without padding.

x = td.nested.nested_tensor([td.randn(3, 16), td.randn(5, 16)])
y = model(x)                          # rows are treated alike, attention stays within each tensor
y.to_padded_tensor(0.0)               # (2, 5, 16)
"""

import tandem.nested.forms
import tandem.nested.reductions
from tandem.nested.collate import nested_collate
from tandem.nested.tensor import (
    NestedTensor,
    as_nested_tensor,
    nested_tensor,
    nested_tensor_from_jagged,
    to_padded_tensor,
)

__all__ = [
    "NestedTensor",
    "as_nested_tensor",
    "nested_collate",
    "nested_tensor",
    "nested_tensor_from_jagged",
    "to_padded_tensor",
]
