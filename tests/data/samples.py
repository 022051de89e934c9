"""Datasets for the tests of loaders, where worker processes can import them."""

import os
import random
import signal
import time

import numpy as np

import tandem as td


class Noisy(td.data.Dataset):
    """Samples that use Tandem's, Python's and NumPy's random numbers."""

    def __init__(self, count: int = 23):
        self.base = td.arange(count * 6).reshape(count, 2, 3).float()

    def __len__(self):
        return len(self.base)

    def __getitem__(self, i):
        own = td.data.sample_random().random()
        return self.base[i] + td.rand(2, 3), {"i": i, "name": str(i)}, random.random(), np.random.rand(2), own


class OwnRandom(td.data.Dataset):
    """Samples that use the sample's own generators only, as those for threads must."""

    def __len__(self):
        return 17

    def __getitem__(self, i):
        time.sleep(td.data.sample_random().random() * 0.002)
        return td.rand(3, generator=td.data.sample_generator()), td.data.sample_random().random()


class Count(td.data.IterableDataset):
    def __init__(self, count: int = 17):
        self.count = count

    def __iter__(self):
        offset = random.random()  # must be the same in all workers
        for i in range(self.count):
            yield i, offset, random.random()


class Sharded(td.data.IterableDataset):
    sharded = True

    def __iter__(self):
        info = td.data.get_worker_info()
        yield from range(info.id if info else 0, 20, info.num_workers if info else 1)


class Who(td.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        info = td.data.get_worker_info()
        return os.getpid(), -1 if info is None else info.id


class Faulty(td.data.Dataset):
    """Sample 5 does something bad."""

    def __init__(self, what: str):
        self.what = what

    def __len__(self):
        return 12

    def __getitem__(self, i):
        if i == 5:
            match self.what:
                case "raise":
                    raise KeyError("no such sample")
                case "unpicklable":
                    raise Unpicklable("only here", lambda: 0)
                case "shape":
                    return td.zeros(2)
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "exit":
                    os._exit(3)
                case "hang":
                    time.sleep(60)
        return td.zeros(1)


class Unpicklable(Exception):
    def __init__(self, text, function):
        super().__init__(text)
        self.function = function


class Refuses(td.data.Dataset):
    """Cannot be rebuilt in another process."""

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return i

    def __reduce__(self):
        return _refuse, ()


def _refuse():
    raise ValueError("not here")


def double(samples):
    return td.stack([td.tensor(s) for s in samples]) * 2, np.arange(100_000)


def first_column(sample):
    return sample[0]


def mark_worker(number):
    os.environ["TANDEM_TEST_WORKER"] = str(number)


class Marked(td.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return int(os.environ["TANDEM_TEST_WORKER"])


class Images(td.data.Dataset):
    def __init__(self, count: int = 12):
        self.images = np.arange(count * 3 * 64 * 64, dtype=np.float32).reshape(count, 3, 64, 64)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], i


class Gaussian(td.data.Dataset):
    """Samples with an odd count of normal numbers: Python and NumPy make two at a time and keep the second one."""

    def __len__(self):
        return 9

    def __getitem__(self, i):
        return random.gauss(0, 1), np.random.randn(), i if i % 2 else int(np.random.randint(1000))


class Squares(td.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        return td.tensor(i * i)


class Stops(Squares):
    def __getitem__(self, i):
        if i == 3:
            next(iter(()))
        return super().__getitem__(i)


class StopsInBatches(Stops):
    def __getitems__(self, indices):
        return [self[i] for i in indices]


class StopsAtOnce(td.data.IterableDataset):
    def __iter__(self):
        raise StopIteration


def stops(_):
    raise StopIteration


class Nested(td.data.Dataset):
    """Samples that come out of a loader with a worker of its own."""

    def __init__(self, method: str):
        self.method = method

    def __len__(self):
        return 2

    def __getitem__(self, i):
        loader = td.data.DataLoader(Squares(), batch_size=4, num_workers=1, multiprocessing_context=self.method)
        return next(iter(loader))


def plain(value):
    """A batch as nested Python values."""
    if isinstance(value, td.Tensor):
        return (str(value.dtype), value.tolist())
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value
