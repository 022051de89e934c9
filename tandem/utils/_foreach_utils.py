"""Lists of tensors by device and dtype, as packages of optimisers divide them."""

from __future__ import annotations


def _group_tensors_by_device_and_dtype(tensorlistlist, with_indices: bool = False) -> dict:
    """{(device, dtype) of the first list's tensors: (the lists, each with its tensors of that kind, where they were)}."""
    groups: dict = {}
    for index, first in enumerate(tensorlistlist[0]):
        lists, places = groups.setdefault((first.device, first.dtype), ([[] for _ in tensorlistlist], []))
        for made, given in zip(lists, tensorlistlist, strict=True):
            if given:
                made.append(given[index])
        if with_indices:
            places.append(index)
    return groups


def _has_foreach_support(tensors, device) -> bool:
    return True


def _get_foreach_kernels_supported_devices() -> list[str]:
    return ["cpu", "cuda"]
