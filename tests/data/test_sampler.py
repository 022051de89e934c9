"""Orders in which samples are read."""

import tandem as td


def test_random_samplers_differ_from_time_to_time_and_repeat_with_their_generator():
    first, second = (list(td.data.RandomSampler(range(50), generator=td.Generator(3))) for _ in range(2))
    assert first == second
    sampler = td.data.RandomSampler(range(50), generator=td.Generator(3))
    assert list(sampler) != list(sampler)
    drawn = list(td.data.RandomSampler(range(3), replacement=True, num_samples=100))
    assert (100, {0, 1, 2}) == (len(drawn), set(drawn))
    assert [2, 2, 2] == [list(td.data.RandomSampler(range(3), num_samples=6)).count(i) for i in range(3)]


def test_weighted_samples_follow_their_weights():
    drawn = list(td.data.WeightedRandomSampler([1.0, 3.0, 0.0], 4000, generator=td.Generator(0)))
    assert 0 == drawn.count(2)
    assert 0.7 < drawn.count(1) / 4000 < 0.8
    assert {0, 1, 2} == set(td.data.WeightedRandomSampler([1.0, 3.0, 2.0], 3, replacement=False))


def test_replicas_see_different_parts_of_one_order():
    parts = [list(td.data.DistributedSampler(range(10), 3, rank, seed=5)) for rank in range(3)]
    assert [4, 4, 4] == [len(p) for p in parts]
    assert set(range(10)) == {i for p in parts for i in p}
    parts = [list(td.data.DistributedSampler(range(10), 3, rank, drop_last=True)) for rank in range(3)]
    assert 9 == len({i for p in parts for i in p})
    loader = td.data.DataLoader(range(10), batch_size=5, sampler=td.data.DistributedSampler(range(10), 2, 0))
    epochs = [[b.tolist() for b in loader] for _ in range(2)]
    assert epochs[0] != epochs[1]  # the loader tells it the epoch


def test_batch_samplers():
    loader = td.data.DataLoader(range(10), batch_sampler=[[1, 2], [5]])
    assert [[1, 2], [5]] == [b.tolist() for b in loader]
