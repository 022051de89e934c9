"""Seeds of samples."""

import random

import numpy as np

import tandem as td
from tandem.data import DataLoader, seeding
from tests.data import samples
from tests.data.samples import plain


def test_mixed_keys_are_spread_out():
    keys = {seeding.mix(seed, epoch, index) for seed in range(10) for epoch in range(10) for index in range(100)}
    assert 10_000 == len(keys)
    ones = sum(bin(k).count("1") for k in keys) / (64 * len(keys))
    assert 0.49 < ones < 0.51


def test_neighbouring_samples_draw_independent_numbers():
    def draws(index):
        seeding.begin_sample(0, index, globally=False)
        value = td.data.sample_random().random()
        seeding.end_sample(None)
        return value

    values = np.array([draws(i) for i in range(2000)])
    assert abs(values.mean() - 0.5) < 0.03
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.07


def batches(loader) -> list:
    return [plain(batch) for batch in loader]


def test_normal_numbers_kept_in_hand_stay_with_their_sample():
    whole = batches(DataLoader(samples.Gaussian(), batch_size=9, seed=3))[0]
    np.random.seed(0)
    np.random.randn()  # the program's own, which has a second one in hand now
    random.gauss(0, 1)
    single = batches(DataLoader(samples.Gaussian(), batch_size=1, seed=3))
    assert [part[1] for part in whole] == [[x for batch in single for x in batch[k][1]] for k in range(3)]
    assert len(set(whole[0][1])) == len(set(whole[1][1])) == 9
    assert batches(DataLoader(samples.Gaussian(), batch_size=1, seed=3, num_workers=2)) == single


def test_generators_that_are_built_otherwise_are_set_by_their_own_functions(monkeypatch):
    expected = batches(DataLoader(samples.Gaussian(), batch_size=9, seed=3))[0]
    monkeypatch.setattr(seeding, "_python_offset", lambda generator: 0)
    monkeypatch.setattr(seeding, "_numpy_address", lambda numpy, bits: 0)
    monkeypatch.setattr(seeding, "_seeds", None)
    random.seed(5)
    state = random.getstate()
    found = batches(DataLoader(samples.Gaussian(), batch_size=9, seed=3))[0]
    assert found[0] == expected[0]
    assert found == batches(DataLoader(samples.Gaussian(), batch_size=9, seed=3))[0]
    assert random.getstate() == state


def test_the_order_follows_manual_seed_and_loading_disturbs_no_generator():
    def order(seed):
        td.manual_seed(seed)
        return batches(DataLoader(samples.Noisy(), batch_size=5, shuffle=True))

    assert order(1) == order(1) != order(2)
    loader = DataLoader(samples.Noisy(), batch_size=5, seed=0)
    td.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    expected = td.rand(1).tolist(), random.random(), np.random.rand()
    td.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    batches(loader)
    assert expected == (td.rand(1).tolist(), random.random(), np.random.rand())


class Numbers(td.data.IterableDataset):
    def __iter__(self):
        return iter(range(4))


def test_a_loop_over_a_stream_in_threads_leaves_the_program_its_own_random_numbers():
    iterator = iter(DataLoader(Numbers(), batch_size=2, num_workers=1, worker_type="thread"))
    assert td.data.sample_random() is random
    assert 2 == len(list(iterator)) and td.data.sample_random() is random


class WithALoader(td.data.Dataset):
    """Samples that are made of another loader's batches, by a dataset that draws nothing."""

    rows = td.data.TensorDataset(td.arange(3))

    def __len__(self):
        return 2

    def __getitem__(self, i):
        before = td.data.sample_random()
        assert 3 == len(list(DataLoader(self.rows, batch_size=1)))
        return float(td.data.sample_random() is before and before is not random)


def test_a_sample_stays_the_one_being_made_after_a_loop_inside_it():
    for more in ({}, {"num_workers": 1, "worker_type": "thread"}):
        assert [1.0, 1.0] == next(iter(DataLoader(WithALoader(), batch_size=2, **more))).tolist()
