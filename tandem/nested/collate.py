"""Batches of samples of different lengths for loaders."""

from __future__ import annotations

from tandem import _runtime
from tandem.data.collate import default_collate
from tandem.nested.tensor import nested_tensor

Tensor = _runtime.Tensor


def nested_collate(samples):
    """A collate_fn for DataLoader that makes nested tensors where samples differ in the size of their first axis, and what
    the usual one makes elsewhere.

    >>> loader = td.data.DataLoader([td.ones(2), td.ones(3)], batch_size=2, collate_fn=td.nested.nested_collate)
    >>> [batch.lengths().tolist() for batch in loader]
    [[2, 3]]
    """
    first = samples[0]
    if isinstance(first, Tensor) and first.ndim and any(s.shape != first.shape for s in samples):
        return nested_tensor(samples)
    if isinstance(first, dict):
        return {k: nested_collate([s[k] for s in samples]) for k in first}
    if isinstance(first, (tuple, list)):
        parts = [nested_collate(list(part)) for part in zip(*samples, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return default_collate(samples)
