"""Shared memory of batches."""

import numpy as np

from tandem.data import DataLoader
from tests.data import samples


def test_tensors_of_a_batch_are_on_shared_memory_that_is_used_again():
    loader = DataLoader(samples.Images(48), batch_size=4, num_workers=1)
    iterator = iter(loader)
    (worker,) = iterator.pool.workers
    for images, _ in iterator:
        assert images.is_shared()
        assert max(worker.pieces) < 10  # numbers rise with each new piece; 12 batches would make 24


def test_batches_that_are_kept_stay_as_they_were():
    data = samples.Images(40)
    kept = list(DataLoader(data, batch_size=2, num_workers=2))
    for i, (images, numbers) in enumerate(kept):
        assert np.array_equal(data.images[2 * i : 2 * i + 2], images.numpy())
        assert [2 * i, 2 * i + 1] == numbers.tolist()
