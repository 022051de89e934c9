"""Data: datasets, samplers, loaders with workers, sources, transforms.

    loader = td.data.DataLoader(td.data.TensorDataset(x, y), batch_size=64, shuffle=True, num_workers=2)
    for images, labels in loader:
        ...

Small real data sets that need no download are in `tandem.data.sets`.
"""

from tandem.data.collate import default_collate, default_convert
from tandem.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    MapDataset,
    MapIterable,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from tandem.data.fetch import WorkerInfo, get_worker_info
from tandem.data.loader import DataLoader
from tandem.data.prefetch import prefetch
from tandem.data.sampler import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from tandem.data.seeding import sample_generator, sample_random

_LAZY = ("sets", "sources", "transforms")  # imported when first used


def __getattr__(name):
    if name in _LAZY:
        import importlib

        return importlib.import_module(f"tandem.data.{name}")
    raise AttributeError(f"module 'tandem.data' has no attribute {name!r}")
