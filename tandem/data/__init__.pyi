"""Made by tools/write_stubs.py: `make stubs`."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from tandem.data import collate as collate
from tandem.data import dataset as dataset
from tandem.data import fetch as fetch
from tandem.data import loader as loader
from tandem.data import sampler as sampler
from tandem.data import seeding as seeding
from tandem.data import sets as sets
from tandem.data import sources as sources
from tandem.data import text_sets as text_sets
from tandem.data import transforms as transforms
from tandem import Device as Device, DeviceLike as DeviceLike, DTypeLike as DTypeLike, Generator as Generator, Tensor as Tensor, TensorLike as TensorLike, dtype as dtype
from tandem.data.dataset import ChainDataset as ChainDataset
from tandem.data.dataset import ConcatDataset as ConcatDataset
from tandem.data.dataset import Dataset as Dataset
from tandem.data.dataset import IterableDataset as IterableDataset
from tandem.data.dataset import MapDataset as MapDataset
from tandem.data.dataset import MapIterable as MapIterable
from tandem.data.dataset import StackDataset as StackDataset
from tandem.data.dataset import Subset as Subset
from tandem.data.dataset import TensorDataset as TensorDataset
from tandem.data.dataset import random_split as random_split
from tandem.data.fetch import WorkerInfo as WorkerInfo
from tandem.data.fetch import get_worker_info as get_worker_info
from tandem.data.loader import DataLoader as DataLoader
from tandem.data.prefetch import prefetch as prefetch
from tandem.data.sampler import BatchSampler as BatchSampler
from tandem.data.sampler import DistributedSampler as DistributedSampler
from tandem.data.sampler import RandomSampler as RandomSampler
from tandem.data.sampler import Sampler as Sampler
from tandem.data.sampler import SequentialSampler as SequentialSampler
from tandem.data.sampler import SubsetRandomSampler as SubsetRandomSampler
from tandem.data.sampler import WeightedRandomSampler as WeightedRandomSampler
def default_collate(batch: Any) -> Any: ...
def default_convert(sample: Any) -> Any: ...
def sample_generator() -> Any: ...
def sample_random() -> Any: ...
